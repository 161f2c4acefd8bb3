package incident

import (
	"testing"
)

// A file may have less than is written today, or nonsense.
func TestRestore(t *testing.T) {
	store := &stored{incidents: []*Incident{
		{ID: "a", State: Open, Opened: begin, Last: begin, Deliveries: map[string]*Delivery{"soc": nil}},
		{ID: "b", State: Open, Opened: begin, Last: begin, Storm: true},
		{ID: "c", State: Open, Opened: begin, Last: begin, Alarms: []Alarm{{Rule: "sign.tunnel", Subject: "r", Text: "x"}}, Runs: []Run{{Run: "r", Caller: "1", Code: "secret", Attempts: 3}}, Processes: []Tally{{Name: "sh -c secret", Count: 1}}},
	}}
	b, err := NewBook(Options{Store: store, HideCode: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range b.List() {
		if i.Title() == "" || i.Since.IsZero() {
			t.Errorf("%+v", i)
		}
		b.Deliver(i.ID, "soc", func(*Delivery) {})
	}
	c := b.Get("c")
	if c.Leading().Run != "r" || !c.Leading().Ended || c.Leading().Code != "" || c.Processes[0].Name != "sh" || len(c.Parties) != 1 {
		t.Errorf("%+v", c)
	}
}

type stored struct{ incidents []*Incident }

func (s *stored) Load() ([]*Incident, []*Silence, error) { return s.incidents, nil, nil }

func (*stored) Save([]*Incident, []*Silence) error { return nil }

func (*stored) Forget([]string, []string) error { return nil }
