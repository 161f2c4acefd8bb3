// Package testenv holds what tests need of the host: permission to be root, built
// binaries, short directories, a private containerd, and a check that nothing is left
// behind. Only tests import it.
//
// # Order
//
// A root test begins with
//
//	testenv.Root(t)
//	testenv.LeakCheck(t)
//
// and then acquires what it needs. Everything here that acquires something registers
// its release with t.Cleanup, and cleanups run last to first, so the check runs after
// all of them.
//
// # Whose is it
//
// Several test binaries, and proctor itself, may run at the same time on one host. What
// a test makes on the host therefore bears the mark of its process: directories from
// [Dir] and cgroup names from [Cgroup] contain its pid; other names are told to [Own].
// LeakCheck counts only those. With PROCTOR_LEAKCHECK=host, for a run that has the host
// to itself, it also counts what is named proctor and bears nobody's mark.
package testenv
