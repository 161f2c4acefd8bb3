// Package relay carries a run's connections to what its policy grants, and closes all others.
//
// A [Relay] is given listeners whose connections have the destination that the code asked for
// as their local address. The destination is an address that stands for a name, which is then
// the name that everything said on the connection has to agree with, or an address that is
// granted as part of a range:
//
//   - For a name on port 443 the first message has to be a TLS ClientHello with that name in it.
//     The bytes are passed on as they came. TLS is not ended here, except for a name that has a
//     credential, whose connections go to a [Terminator].
//   - For a name on port 80 every request is read, checked and written anew: HTTP/1 only, and
//     the Host of each is the name.
//   - For a name on another port both are checked where the client's first bytes look like
//     them. Whatever else is spoken there, and whatever the server says first, is passed on:
//     the server is the one that the name stands for. So is what a client says after it was
//     silent for Options.SpeakTimeout.
//   - What is sent to a granted range is passed on without a look at it.
//
// The explicit proxy ([Relay.ServeProxy]) has the same rules. A connection to it carries one
// tunnel or one request. Datagrams ([Relay.ServePacket]) go to granted ranges alone.
//
// What a ClientHello proves is what it says: not the Host inside, and where it has an encrypted
// inner name (ECH), the outer one alone. A second ClientHello, which follows a server's
// HelloRetryRequest, is not read.
//
// Every connection and every stream of datagrams is told to the [Recorder] once, at its end.
// Connections that a limit turned away are told one by one until there are many, and then
// counted.
//
// Of the kernel it needs, besides what net does: ioctl(FIONREAD, which is TIOCINQ), splice,
// pipe2, fcntl(F_SETPIPE_SZ) and recvfrom with MSG_PEEK; and for datagrams
// setsockopt(IP_RECVORIGDSTADDR) and recvmsg.
package relay
