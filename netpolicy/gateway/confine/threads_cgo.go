//go:build cgo

package confine

// threads are the calls by which C makes one, which is the case in tests alone: the gateway
// is built without.
var threads = []string{"clone3"}
