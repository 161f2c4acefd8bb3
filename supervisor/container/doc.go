// Package container makes boxes with containerd and runc: the second rung of the
// isolation ladder and the default.
//
// A box has a user namespace with a range of ids of its own, a network namespace that
// the caller made, a cgroup below the instance's parent, a read-only root that is the
// image, and one tmpfs on which everything it may write lies. See [box.Box] for who
// releases what.
package container
