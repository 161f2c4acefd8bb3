package outbox

import (
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sink"
	"proctor/audit"
)

// due says what the sink is to be told of an incident, and when. ever is of what it will be told
// some time.
func (w *worker) due(i *incident.Incident, now time.Time, ever bool) (sink.What, time.Time) {
	d := i.Deliveries[w.route.Name]
	if d == nil {
		// What was over before this sink was there is no news.
		if i.State == incident.Resolved {
			return "", time.Time{}
		}
		d = &incident.Delivery{}
	}
	if d.State == "" && (i.State == incident.Resolved && i.Hushed || i.OnlyOf(incident.RefusedRule, audit.Text(w.route.Name))) {
		return "", time.Time{} // it was silenced, or says that this sink does not work
	}
	over := i.State == incident.Resolved && d.State == incident.Open // which is told whatever is silenced by now
	again := i.State == incident.Open && d.State != "" && d.Reopened != i.Reopened
	switch {
	case i.Silence != "" && !over, d.Parked && i.Loud <= d.GaveUp:
		return "", time.Time{}
	case w.route.Wants != nil && (d.State != incident.Open || again) && !w.route.Wants(i):
		return "", time.Time{}
	}
	at := func(what sink.What, when time.Time) (sink.What, time.Time) {
		if when.After(now) && !ever {
			return "", when
		}
		return what, when
	}
	switch {
	case d.State == "":
		return at(sink.Opened, now)
	case over && d.Time.After(i.Resolved):
		return at(sink.Resolved, d.Time.Add(lateEnd))
	case over:
		return at(sink.Resolved, now)
	case again:
		return at(sink.Reopened, now)
	case i.State == incident.Resolved:
		return "", time.Time{}
	case i.Severity > d.Severity || i.Loud > d.Revision || (i.Ack != nil) != d.Acked && w.traits.Edits:
		return at(sink.Updated, now)
	case d.Revision < i.Revision && w.traits.Edits:
		every := editEvery
		if i.Material > d.Revision {
			every = editEvery / 2
		}
		return at(sink.Updated, d.Time.Add(every))
	case d.Revision < i.Revision && d.Messages < maxMessages && i.Ack == nil && (i.Attempts >= growth*max(d.Attempts, 1)):
		return at(sink.Updated, d.Time.Add(againEvery))
	case w.traits.Repeat > 0:
		if what, when := at(sink.Repeated, d.Time.Add(w.traits.Repeat)); !ever {
			return what, when
		}
	}
	return "", time.Time{}
}
