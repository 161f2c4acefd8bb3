// Package egress says what a run may reach outside, and decides it.
//
// A [Policy] is what a profile grants: names and address ranges with their ports, and the
// credentials that are added for some of them. It is read strictly: what can't be understood or
// can't be enforced is an error when it is loaded, never a grant or a refusal by accident. An
// empty policy grants nothing. A caller can make one smaller, with [Policy.Narrow], and nothing
// makes one larger.
//
// The package decides and does nothing: it opens no socket and asks no server.
package egress
