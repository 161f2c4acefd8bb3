// Package bpf watches runs from inside the kernel and keeps them off the network.
//
// A [Sensor] is the loaded programs and their attachment: one load and one attachment
// for all runs. The network programs are attached to a parent cgroup; every run is a
// direct child of it. The parent's own tasks and a child that is not watched are refused
// every AF_INET and AF_INET6 socket, connection and packet. Links are pinned below the
// directory given to [Open], so that what is refused stays refused while no process of
// ours is alive; the next Open takes the attachment over without a gap.
//
// A [Watch] is one run: a ring buffer of its own and an entry that lets its tasks use
// their own loopback. It must exist before anything in the run's cgroup needs the
// network. Attempts that are refused are recorded from then on; everything else from
// [Watch.Arm] on, so that the making of a box is not in the record of what its code did.
//
// # What is recorded
//
// Opens (the path as the kernel resolved it), changes to names and attributes, execs with
// their command lines, forks, exits, OOM victims, connects, datagrams, binds, and system
// calls that were refused. Events are numbered in the kernel. An event that finds no room
// keeps its number and is counted as lost, so that a record is either complete or says by how
// much it is not. What a thread does again and again is one event and a count; an open whose
// descriptor a second thread may have exchanged is marked. docs/sight.md has all of it.
//
// The programs know a run by its task's ancestor cgroup at one level, and a packet by its
// socket's. A socket made outside the parent passes the hooks, whoever uses it: nobody may
// hand one to a run.
//
// # Who releases what
//
// Who called Open calls [Sensor.Close], which leaves the attachment in place, or
// [Sensor.Remove], which takes it down. Who called [Sensor.Watch] calls [Watch.Close],
// after the run's cgroup is dead and [Watch.Drain] has returned what was left. The package
// starts no goroutine.
package bpf
