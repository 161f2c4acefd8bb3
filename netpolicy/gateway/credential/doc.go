// Package credential ends the TLS of connections to hosts that have a credential, adds the
// secret on the outside, and takes it out of what comes back. The run's code never holds it.
//
// An [Authority] is the certificate authority of one run. A [Terminator] serves the connections
// of that run: it shows the code a certificate of the authority, reads HTTP/1.1 or HTTP/2,
// checks each request against the credential's rules, and sends it on over a connection of its
// own, whose certificate is verified for the granted name. Upstream connections belong to the
// Terminator; two runs have two of them and share none.
//
// A [Scrubber] finds a secret in what an upstream answers: as it is, in base64, escaped for a
// URL, JSON or HTML, and in hexadecimal. It finds no form that it does not know: a secret that
// comes back reversed, encrypted, in UTF-16, inside a compressed file, a piece an answer, or in
// base64 that is broken into lines passes. Scrubbing is for echoes and error pages; an upstream that means to give a secret away
// can.
//
// So that there is one body to look through, ranges are not asked for (a request for one is
// answered with the whole), compressed bodies are sent on uncompressed, and WebSockets have no
// extensions; an answer in an encoding that is not known is blocked. Status texts are this side's
// own. Where nothing follows for some time, up to four bytes that may begin a secret are let go,
// or a message that happens to end with them would be stuck; the rest of it is still taken out.
// More is not let go: the answer is ended. As what is held back can be seen, code could have a server
// echo guesses and so find a secret byte by byte; after three beginnings of a secret nothing more is
// asked with its credential.
//
// What this package prints, returns as an error and records holds no secret.
package credential
