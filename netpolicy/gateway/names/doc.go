// Package names is what a name means to a run, on either side of its gateway.
//
// Towards the run, [Resolver] answers its questions: a granted name has a synthetic address of
// its own, from [Table], and any other does not exist. Towards the outside, [Upstream] asks the
// host's resolvers, for granted names alone, and [Dialer] connects to a name: it resolves it
// once more, judges every address, and connects to one that it judged.
//
// A granted name that exists has an address of both families here, whatever it has outside:
// every address of the run leads to the gateway, and the dialer picks a family by itself. So no
// client waits for, or gives up after, a family that is missing.
//
// All of it is safe for concurrent use. [Upstream] starts goroutines and joins them in Close;
// the others join what they start before they return.
package names
