// Package incident makes incidents of alarms: what belongs together is told as one thing, which
// opens, grows, is resolved when it has been quiet, and may open again.
//
// An alarm belongs to the open incident that its run is part of; else to the one, open or resolved
// not long ago, that had the same rule alarm about the same subject; else to an open one of the
// same caller and agent label that was after one of the same destinations. Else it opens a new
// one, unless its caller, or the host, has so many open that one more would not be read: those
// that come then are one incident together.
//
// A [Book] holds them, in memory and in a [Store]. It knows nothing of who is told how.
package incident
