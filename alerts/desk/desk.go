// Package desk puts alarms together: detectors, the book of incidents and its file, and the outbox
// that tells sinks.
package desk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"proctor/alerts"
	"proctor/alerts/incident"
	"proctor/alerts/ledger"
	"proctor/alerts/outbox"
	"proctor/alerts/sign"
	"proctor/alerts/spike"
	"proctor/audit"
)

// Options of Open.
type Options struct {
	File string // where incidents are kept
	// History is the file of what is learned of attempts, now and then and at the end.
	History string
	Rules   alerts.Rules
	// Quiet is after how long without news an incident is resolved, Reopen within which time it
	// opens again. 0: the book's defaults.
	Quiet, Reopen time.Duration
	Routes        []outbox.Route
	// Code returns the first lines of a run's code; nil: none.
	Code func(run string) audit.Text
	// HideCode keeps of command lines the program's name alone.
	HideCode bool
	// Delivered is told how long it took from an incident's change to when a sink had it; nil: nobody is.
	Delivered func(sink string, took time.Duration)
	Log       *slog.Logger
}

// A Desk is open for alarms. Whoever opens it calls Close.
type Desk struct {
	log    *slog.Logger
	ledger *ledger.Ledger
	book   *incident.Book
	watch  *alerts.Watch
	outbox *outbox.Outbox
	rules  alerts.Rules
	unkept chan struct{}
	past   history

	mu    sync.Mutex
	sight func() map[string]error

	cancel  context.CancelFunc
	ticking sync.WaitGroup
}

// Open reads what is kept and begins to tell what was not told.
func Open(o Options) (*Desk, error) {
	l, aside, err := ledger.Open(o.File)
	if err != nil {
		return nil, err
	}
	if aside != "" {
		o.Log.Error("the alarms' file was damaged and is put aside: silences and what was not told are lost", "file", aside)
	}
	d := &Desk{log: o.Log, ledger: l, rules: o.Rules, unkept: make(chan struct{}, 1)}
	var names []string
	for _, r := range o.Routes {
		names = append(names, r.Name)
	}
	if d.book, err = incident.NewBook(incident.Options{Store: l, Quiet: o.Quiet, Reopen: o.Reopen, Code: o.Code, HideCode: o.HideCode, Sinks: names, Wants: func(sink string, i *incident.Incident) bool {
		for _, r := range o.Routes {
			if r.Name == sink {
				return r.Wants == nil || r.Wants(i)
			}
		}
		return false
	}}); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	d.watch = alerts.New(o.Rules, d.book)
	d.past = history{file: o.History, watch: d.watch, log: o.Log}
	d.past.read()
	d.outbox = outbox.New(outbox.Options{Book: d.book, Routes: o.Routes, Log: o.Log, Broken: d.broken, Mended: d.mended, Delivered: o.Delivered, Keep: d.keep})
	var ctx context.Context
	ctx, d.cancel = context.WithCancel(context.Background())
	d.ticking.Go(func() { d.tick(ctx) })
	d.outbox.Start(ctx)
	return d, nil
}

// Close stops telling and closes the file. What is not told yet is told after the next Open.
func (d *Desk) Close() error {
	d.cancel()
	d.ticking.Wait()
	d.outbox.Stop()
	d.past.write()
	return errors.Join(d.book.Save(), d.ledger.Close())
}

// Book is the incidents'.
func (d *Desk) Book() *incident.Book { return d.book }

// Sinks are how they are doing.
func (d *Desk) Sinks() []outbox.Health { return d.outbox.Health() }

// Test sends a marked test to a sink.
func (d *Desk) Test(ctx context.Context, name string) error { return d.outbox.Test(ctx, name) }

// Profile notes what a profile's rule is, for the runs that begin from now on.
func (d *Desk) Profile(name string, over func(base spike.Rule) spike.Rule) {
	d.watch.Profile(name, over(d.rules.Spikes[spike.ByRun]))
}

// Observe looks at what a run did, and reports whether that is an alarm. It waits for no sink and
// no disk.
func (d *Desk) Observe(events []audit.Event) (raised bool) {
	for i := range events {
		for _, a := range d.watch.Observe(&events[i]) {
			d.say(a)
			raised = true
		}
	}
	return raised
}

// Keep returns when what was raised is on the disk, or could not be written: that is tried again,
// and an alarm of its own.
func (d *Desk) Keep() { _ = d.book.Save() }

// Left returns who looks at the events of one run that an earlier supervisor left.
func (d *Desk) Left() func(*audit.Event) {
	w := d.watch.Left()
	return func(e *audit.Event) {
		for _, a := range w.Observe(e) {
			d.say(a)
		}
	}
}

// keep has what changed written down soon.
func (d *Desk) keep() {
	select {
	case d.unkept <- struct{}{}:
	default:
	}
}

// Sight has look asked, every few seconds, what keeps runs from being seen, by what it is about.
func (d *Desk) Sight(look func() map[string]error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sight = look
}

const (
	tickEvery    = time.Second
	sightEvery   = 5   // ticks
	historyEvery = 600 // likewise: what a crash costs of it
)

func (d *Desk) tick(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	blind := map[string]bool{}
	var unkept error
	for n := 0; ; {
		changed := d.book.Changed()
		select {
		case <-ctx.Done():
			return
		case <-changed: // what is new is kept at once
		case <-d.unkept:
		case <-ticker.C:
			d.book.Tick(time.Now())
			if n%sightEvery == 0 {
				d.look(blind, unkept)
			}
			if n++; n%historyEvery == 0 {
				d.past.write()
			}
		}
		d.book.Complete()
		err := d.book.Save()
		if err != nil && unkept == nil {
			d.log.Error("incidents can't be kept; what is not told is lost if the supervisor ends", "error", err)
		}
		unkept = err
	}
}

// look raises what is not seen, once, and again when it is still so after a while, so that the
// incident stays open.
func (d *Desk) look(known map[string]bool, unkept error) {
	d.mu.Lock()
	sight := d.sight
	d.mu.Unlock()
	now := map[string]error{}
	if sight != nil {
		now = sight()
	}
	if unkept != nil {
		now["incidents can't be kept"] = unkept
	}
	severity, on := d.rules.Signs[sign.Blind]
	for what, err := range now {
		if on {
			d.raise(alerts.OfSign(sign.Sign{Kind: sign.Blind, Time: time.Now(), What: what + ": " + err.Error()}, severity), what, !known[what])
		}
		known[what] = true
	}
	for _, h := range d.outbox.Health() {
		if h.Refused {
			d.refuses(h.Sink, h.Error, true)
		}
	}
	for what := range known {
		if _, still := now[what]; !still {
			delete(known, what)
		}
	}
}

func (d *Desk) broken(sink string, err error) {
	d.refuses(sink, err.Error(), false)
}

func (d *Desk) refuses(sink, why string, again bool) {
	text := fmt.Sprintf("Nobody is told of incidents at %s, which refuses: %s", sink, why)
	d.raise(incident.Alarm{Time: time.Now(), Rule: incident.RefusedRule, Severity: incident.Critical, Text: audit.Text(text), Again: again}, sink, !again)
}

func (d *Desk) mended(sink string) {
	d.book.Over(incident.RefusedRule, audit.Text(sink), time.Now())
}

func (d *Desk) raise(a incident.Alarm, subject string, log bool) {
	a.Subject = audit.Text(subject) // its text changes
	d.book.Raise(a)
	if log {
		d.say(a)
	}
}

func (d *Desk) say(a incident.Alarm) {
	d.log.Warn("alarm", "rule", a.Rule, "subject", a.Subject.Printable(), "severity", a.Severity.String(), "what", a.Text.Printable(), "run", a.Run)
}
