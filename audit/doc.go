// Package audit holds what Proctor writes down about a run: the event types, the
// per-run journal on disk, and the live feed of all runs.
//
// It imports no other package of this module, so that every producer (bpf,
// netpolicy, supervisor) and every consumer (api, alerts) can agree on one set of
// types without an arrow between them.
//
// A [Journal] and a [Record] keep room on disk for their own ends: see [IsFull].
//
// A [Journal] belongs to the run that opened it and is closed by it. A [Feed]
// belongs to the supervisor; a [Subscription] to the reader that asked for it, who
// closes it.
package audit
