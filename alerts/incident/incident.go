package incident

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"proctor/audit"
)

// Severity says how soon somebody should look.
type Severity int

// The severities, in order.
const (
	Info Severity = iota
	Warning
	Critical
)

var severities = []string{"info", "warning", "critical"}

// Severities are all there are, in order.
func Severities() []string { return slices.Clone(severities) }

func (s Severity) String() string {
	if s < 0 || int(s) >= len(severities) {
		return fmt.Sprintf("severity %d", int(s))
	}
	return severities[s]
}

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Severity) UnmarshalText(text []byte) error {
	at := slices.Index(severities, string(text))
	if at < 0 {
		return fmt.Errorf("severity %q: write info, warning or critical", text)
	}
	*s = Severity(at)
	return nil
}

// An Alarm is one thing that somebody should hear of.
type Alarm struct {
	Time     time.Time  `json:"time"`
	Rule     string     `json:"rule"`          // spike.KIND or sign.KIND
	Subject  audit.Text `json:"subject"`       // what it is about: a run, a caller, a name; hostile
	Severity Severity   `json:"severity"`      //
	Text     audit.Text `json:"text"`          // what was seen, with its numbers; hostile
	Run      string     `json:"run,omitempty"` // whose act it was; empty: nobody's
	Times    uint64     `json:"times"`         // how often it came, in one incident
	// Again says that it was raised before and what it is about goes on: it keeps its incident open,
	// and is no news.
	Again bool `json:"-"`
}

func (a *Alarm) fingerprint() string { return a.Rule + "\x00" + string(a.Subject) }

// State is how an incident is.
type State string

// The states. One that was reopened is open.
const (
	Open     State = "open"
	Resolved State = "resolved"
)

// What an incident holds at most; more is counted.
const (
	maxAlarms       = 20
	maxRuns         = 20
	maxDestinations = 50
	maxProcesses    = 5
)

// An Incident is what belongs together.
type Incident struct {
	ID       string   `json:"id"`
	State    State    `json:"state"`
	Severity Severity `json:"severity"` // the highest of its alarms
	// Revision changes with everything that is to be told; Material is the revision of the last
	// change that is more than a higher count.
	// Loud is that of the last of these that people are to be notified of again.
	Revision uint64 `json:"revision"`
	Material uint64 `json:"material"`
	Loud     uint64 `json:"loud"`

	Opened   time.Time `json:"opened"`
	Since    time.Time `json:"since"`            // when it was opened the last time
	Last     time.Time `json:"last"`             // the newest alarm or attempt
	Changed  time.Time `json:"changed,omitzero"` // when there was the last that is more than a higher count
	Resolved time.Time `json:"resolved,omitzero"`
	Reopened int       `json:"reopened,omitempty"` // how often; what follows is of this time

	Alarms       []Alarm  `json:"alarms"`                  // one of each rule and subject, the first first
	OtherAlarms  uint64   `json:"other_alarms,omitempty"`  // of rules and subjects that there was no place for
	Attempts     uint64   `json:"attempts"`                // blocked ones of all its runs
	Destinations []Tally  `json:"destinations"`            // by attempts, the most first
	Elsewhere    uint64   `json:"elsewhere,omitempty"`     // attempts at what there was no place for
	Runs         []Run    `json:"runs"`                    // the first first
	Lead         string   `json:"lead,omitempty"`          // the run to look at first
	OtherRuns    uint64   `json:"other_runs,omitempty"`    // that there was no place for
	Processes    []Tally  `json:"processes"`               // command lines that made attempts
	Parties      []Party  `json:"parties,omitempty"`       // who takes part
	OtherParties bool     `json:"other_parties,omitempty"` // that there was no place for
	Criticals    []string `json:"criticals,omitempty"`     // rules that critical alarms were of
	Hushed       bool     `json:"hushed,omitempty"`        // it was silenced when it was resolved
	Ack          *Ack     `json:"acknowledged,omitempty"`  //
	Silence      string   `json:"silence,omitempty"`       // the silence that keeps it from being told; empty: none
	Suppressed   uint64   `json:"suppressed,omitempty"`    // alarms that a silence kept from being told
	Storm        bool     `json:"storm,omitempty"`         // it holds what would have been too many incidents

	// Deliveries are what each sink was told.
	Deliveries map[string]*Delivery `json:"deliveries,omitempty"`

	groups  map[string]bool // of destinations: registrable domains and networks
	runs    map[string]bool // that go on, with those that there was no place for
	counted bool            // nobody has seen this revision
}

// A Tally is how often there was something.
type Tally struct {
	Name  audit.Text `json:"name"` // hostile
	Count uint64     `json:"count"`
}

// A Run is one that an incident is about.
type Run struct {
	Run          string     `json:"run"`
	Caller       string     `json:"caller"` // uid, and name if there is one
	Agent        audit.Text `json:"agent,omitempty"`
	Conversation audit.Text `json:"conversation,omitempty"`
	Image        string     `json:"image,omitempty"`
	Profile      string     `json:"profile,omitempty"`
	CodeSHA256   string     `json:"code_sha256,omitempty"`
	Code         audit.Text `json:"code,omitempty"` // its first lines, of an incident's leading run alone
	Attempts     uint64     `json:"attempts"`
	Ended        bool       `json:"ended"`
}

// An Ack says that somebody looks after it.
type Ack struct {
	By   string     `json:"by"`
	Time time.Time  `json:"time"`
	Note audit.Text `json:"note,omitempty"`
}

// A Delivery is what one sink was told of an incident.
type Delivery struct {
	Revision uint64          `json:"revision"`           // that it knows
	State    State           `json:"state"`              // as told; empty: nothing was told
	Severity Severity        `json:"severity"`           //
	Attempts uint64          `json:"attempts"`           // as told
	Acked    bool            `json:"acked"`              //
	Time     time.Time       `json:"time,omitzero"`      // when
	Messages int             `json:"messages"`           // since it was opened the last time
	Reopened int             `json:"reopened,omitempty"` // as told
	Ref      json.RawMessage `json:"ref,omitempty"`      // the sink's own, to find its message again

	// Unknown counts tries, since the last that went right, of which nobody knows whether they
	// were seen; Parked: there were too many, it waits until the sink is known to work.
	Unknown int       `json:"unknown,omitempty"`
	Parked  bool      `json:"parked,omitempty"`
	GaveUp  uint64    `json:"gave_up,omitempty"` // the incident's revision when it was parked: louder news are tried
	Failing time.Time `json:"failing,omitzero"`  // since when
	Error   string    `json:"error,omitempty"`   // the last
}

// Title is what it is, in a few words.
func (i *Incident) Title() audit.Text {
	switch {
	case i.Storm:
		return "Many incidents at once: " + i.Alarms[0].Subject
	case len(i.Alarms) == 0:
		return "Nothing yet"
	}
	return i.leading().Text
}

// leading is the first of the most severe alarms.
func (i *Incident) leading() *Alarm {
	found := &i.Alarms[0]
	for k := range i.Alarms {
		if i.Alarms[k].Severity > found.Severity {
			found = &i.Alarms[k]
		}
	}
	return found
}

// Leading is the run to look at first, nil if it is about none.
func (i *Incident) Leading() *Run {
	if len(i.Runs) == 0 {
		return nil
	}
	if r := i.run(i.Lead); r != nil {
		return r
	}
	return &i.Runs[0]
}

// run is one that is shown, nil if it is not.
func (i *Incident) run(id string) *Run {
	if at := slices.IndexFunc(i.Runs, func(r Run) bool { return r.Run == id }); at >= 0 {
		return &i.Runs[at]
	}
	return nil
}

// told is 1 where some sink was told of it, else 0.
func (i *Incident) told() int {
	for _, d := range i.Deliveries {
		if d.State != "" {
			return 1
		}
	}
	return 0
}

// ManyAttempts reports whether it is critical for how many attempts it has.
func (i *Incident) ManyAttempts() bool { return i.Severity == Critical && i.Attempts >= manyAttempts }

// RunCount is how many runs it is about.
func (i *Incident) RunCount() uint64 { return uint64(len(i.Runs)) + i.OtherRuns }

// clone is a copy that shares nothing that changes. What changes from now on has another revision.
func (i *Incident) clone() *Incident {
	i.counted = false
	c := *i
	c.Alarms, c.Destinations, c.Runs, c.Processes = slices.Clone(i.Alarms), slices.Clone(i.Destinations), slices.Clone(i.Runs), slices.Clone(i.Processes)
	c.runs, c.groups, c.Parties, c.Criticals = nil, nil, slices.Clone(i.Parties), slices.Clone(i.Criticals)
	c.Deliveries = make(map[string]*Delivery, len(i.Deliveries))
	for name, d := range i.Deliveries {
		copied := *d
		c.Deliveries[name] = &copied
	}
	return &c
}

// tally counts something in a list that has room for so many, most first. It reports false where
// there was none.
func tally(list []Tally, room int, name audit.Text, n uint64) ([]Tally, bool) {
	at := slices.IndexFunc(list, func(t Tally) bool { return t.Name == name })
	if at < 0 {
		if len(list) >= room {
			return list, false
		}
		list, at = append(list, Tally{Name: name}), len(list)
	}
	list[at].Count += n
	for ; at > 0 && list[at].Count > list[at-1].Count; at-- {
		list[at], list[at-1] = list[at-1], list[at]
	}
	return list, true
}

// A Silence keeps incidents from being told for some time.
type Silence struct {
	ID      string    `json:"id"`
	Matches Matcher   `json:"matches"`
	Begin   time.Time `json:"begin"`
	End     time.Time `json:"end"`
	Reason  string    `json:"reason"`
	By      string    `json:"by"`
}

// A Matcher says which incidents. What is empty matches all; it matches an incident that one of
// its runs or alarms fits.
type Matcher struct {
	Caller      string `json:"caller,omitempty"` // uid or name
	Agent       string `json:"agent,omitempty"`
	Profile     string `json:"profile,omitempty"`
	Image       string `json:"image,omitempty"`
	Rule        string `json:"rule,omitempty"`        // of an alarm: spike.run, or sign for all of a kind
	Destination string `json:"destination,omitempty"` // a name or what is below it, an address, or a network as 192.0.2.0/24
	Incident    string `json:"incident,omitempty"`    // by id
}

// Empty reports whether it matches everything.
func (m Matcher) Empty() bool { return m == Matcher{} }
