// Package clients tries the network of a run with real clients against real servers: they work
// without any setting where a name is granted, and are told quickly where it is not.
package clients
