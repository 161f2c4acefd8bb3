// Package spike finds too many blocked attempts to reach something.
//
// # What is counted
//
// An attempt is a connect or datagram that the kernel refused, a question for a name that is not
// granted, or a connection that the gateway refused; a repeated one counts as often as it was
// made. Attempts are counted for the run, its caller, its agent's label, its image, the
// destination, and the host as a whole. A destination is a name's registrable domain, by the
// public suffix list, or an address's network: /24 of IPv4, /48 of IPv6.
//
// # When there are too many
//
// A count is of a window of time that slides in steps of a sixtieth of its length: an attempt
// counts for the window and at most one step more. A series alarms when its count reaches its
// limit. Until the count has fallen below half of that, the series is raised: attempts go on to be
// told, as the same alarm again, when a run first takes part and each half minute, but not more
// than sixty times a minute. After that it alarms anew.
//
// A series is young until it has had as many windows with runs as its rule's history says. Its
// limit is the rule's threshold. That of an older one is the largest of the threshold, of factor
// times what is expected, and of what is expected and six deviations. What is expected is the
// median of attempts per run in past windows, times the runs of this one: more work makes more
// noise. A deviation is 1.4826 times the median absolute deviation from that median, which is
// the standard deviation where there is a normal one; where that is 0, 1.2533 times the mean
// absolute deviation.
//
// Code can teach what is usual, so that a limit above the threshold has bounds of its own: 60
// attempts for each run of the window; four times factor times the attempts of a busy window,
// which three of four in the past did not exceed; and 1,000 times the threshold.
//
// # What many have in common
//
// A destination that at least ten runs of at least three callers have tried to reach is common,
// as the host that a library reports its use to. Attempts to reach it count for the run and the
// destination alone. While host and destination are young, a common one that alarmed does so again
// only at twice the most that it had: nothing tells a library's noise from an attack, so it is told
// once, and then learned. What is counted together, because a run has too many destinations or
// an attempt has no address, is no destination and never common.
//
// # Time
//
// An event from before the newest one counts as if it came now. One from more than a window
// before says that the clock was ahead: the series begins its count anew, and keeps its history.
package spike
