// Package gateway is the process that a run's network ends in. It is one process a run: it
// holds that run's rules and secrets, and no other's.
//
// It is given listening sockets that the supervisor made inside the run's network namespace,
// where every address leads to them, and answers there as a resolver and as whatever the code
// connects to. It dials outside from the host's own namespace. It has no rights and no files:
// it parses what hostile code sends.
package gateway
