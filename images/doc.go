// Package images makes the root file systems that boxes run on, records them in a lock file and brings them into
// containerd.
//
// There are three steps, each usable alone:
//
//   - A recipe (YAML, strict) names Debian packages and what is done to them. Build turns it into an OCI archive with
//     one layer and enters the archive in the lock file. No registry is involved: packages come from the apt sources
//     of the machine that builds. Build needs root and mmdebstrap.
//   - A Lock maps the names that a run may ask for to one manifest digest each, with the packages that are inside.
//     What is not in the lock can't be run: Resolve takes bare names only, never a reference to a registry, tag or
//     digest.
//   - Import loads a locked archive into containerd and unpacks it. Present hands out the image that a run is
//     created from, and refuses whatever is not exactly the locked digest. Prune removes what the lock has dropped.
//
// # What every image holds
//
// A user agent (uid and gid 1000, home /scratch), the empty directories /inputs, /outputs, /scratch, /code, /tmp,
// /proc, /dev, /sys and /run, and the mount points /.proctor/init (a file) and /.proctor/ctl (a directory), so that a
// box can be put together without a write to the root file system. /etc/resolv.conf, /etc/hosts and /etc/hostname are
// regular files that can be mounted over. No file has a setuid or setgid bit, an extended attribute or file
// capabilities; there are no device nodes, package lists, caches, logs or names of the building machine.
//
// # Contract
//
// The functions print nothing and start no goroutine that outlives them. Build leaves either a complete archive and
// lock entry or neither, also when its context ends; it runs in mount and process namespaces of its own, so not even a
// SIGKILL leaves a mount or a process. What a killed build left on disk is removed by the next one. Builds into one
// directory wait for each other.
//
// Clients of containerd belong to the caller, as does the containerd namespace, which is taken from the context. Import
// and Prune in one namespace must not be called from two processes at once; within a process they wait for each other.
package images
