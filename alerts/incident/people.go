package incident

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"proctor/audit"
)

// silenced is a silence that keeps an incident from being told, empty if there is none: each of its
// alarms must be covered by one.
func (b *Book) silenced(i *Incident, now time.Time) (id string) {
	for id, s := range b.silences {
		if s.Matches == (Matcher{Incident: i.ID}) && !now.Before(s.Begin) && now.Before(s.End) {
			return id // whatever is in it
		}
	}
	if len(b.silences) == 0 || i.OtherAlarms > 0 && i.Silence == "" {
		return ""
	}
	for k := range i.Alarms {
		by := b.covered(i, &i.Alarms[k], now)
		if by == "" {
			return ""
		}
		id = max(id, by)
	}
	return id
}

// covered is a silence that covers an alarm of an incident, empty if none does.
func (b *Book) covered(i *Incident, a *Alarm, now time.Time) (by string) {
	for id, s := range b.silences {
		if !now.Before(s.Begin) && now.Before(s.End) && s.Matches.covers(i, a) {
			by = max(by, id)
		}
	}
	return by
}

// ErrUnknown is of an incident or silence that there is not.
var ErrUnknown = errors.New("there is no such incident or silence")

// Find is by an id, or by a beginning of one of four characters at least that no other has. Its
// error is ErrUnknown.
func Find[T any](all map[string]T, id string) (T, error) {
	var zero, found T
	if one, ok := all[id]; ok {
		return one, nil
	}
	n := 0
	for name, one := range all {
		if strings.HasPrefix(name, id) && len(id) >= 4 {
			found = one
			n++
		}
	}
	if n != 1 {
		return zero, fmt.Errorf("%q: %w", id, ErrUnknown)
	}
	return found, nil
}

// Acknowledge notes that somebody looks after an incident.
func (b *Book) Acknowledge(id string, a Ack) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, err := Find(b.all, id)
	if err != nil {
		return err
	}
	i.Ack = &a
	b.touch(i, a.Time, true)
	return nil
}

// Over resolves an incident that has no alarms but those of one rule and subject, as what they are
// about is mended.
func (b *Book) Over(rule string, subject audit.Text, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range b.all {
		if i.State == Open && i.OnlyOf(rule, subject) {
			b.resolve(i, now)
		}
	}
}

// Silence begins one, and returns its id and how many open incidents it keeps from being told. Of
// an incident it may name the beginning of an id, as [Find] has it; its error is ErrUnknown.
func (b *Book) Silence(s Silence) (id string, covers int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Matches.Incident != "" {
		i, err := Find(b.all, s.Matches.Incident)
		if err != nil {
			return "", 0, err
		}
		s.Matches.Incident = i.ID
	}
	s.ID = newID()
	b.silences[s.ID], b.unsaved[s.ID] = &s, &s
	for _, i := range b.all {
		if i.State == Open {
			b.hush(i, s.Begin)
			if i.Silence != "" && (s.Matches == (Matcher{Incident: i.ID}) || slices.ContainsFunc(i.Alarms, func(a Alarm) bool { return s.Matches.covers(i, &a) })) {
				covers++
			}
		}
	}
	b.wake()
	return s.ID, covers, nil
}

// hush has an incident follow the silences there are.
func (b *Book) hush(i *Incident, now time.Time) {
	if s := b.silenced(i, now); s != i.Silence {
		i.Silence = s
		b.touch(i, now, true)
	}
}

// Expire ends a silence now.
func (b *Book) Expire(id string, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := Find(b.silences, id)
	if err != nil {
		return err
	}
	s.End = now
	b.unsaved[s.ID] = s
	b.wake()
	return nil
}

// Silences are all that are remembered, the newest first.
func (b *Book) Silences() []Silence {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []Silence{}
	for _, s := range b.silences {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(x, y Silence) int { return y.Begin.Compare(x.Begin) })
	return list
}
