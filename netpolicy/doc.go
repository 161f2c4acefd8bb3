// Package netpolicy owns the network side of a run: its network namespace and what an
// address means to it.
//
// A [Namespace] is made before the box that uses it and belongs to whoever called
// [NewNamespace], who closes it after the box is gone.
package netpolicy
