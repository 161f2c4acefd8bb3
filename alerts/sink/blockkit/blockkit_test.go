package blockkit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/slack-go/slack"

	"proctor/alerts/incident"
	"proctor/alerts/message"
	"proctor/alerts/sink"
	"proctor/audit"
)

const hostile = "😀😀😀😀😀😀😀😀 <!channel> <@U1> <https://evil.example|ok> &amp; ``` *b* _i_ ~s~ :boom: \x1b[31m\u202e\u2066 a\nb \xff `"

// units are what a text has in UTF-16, in which some count.
func units(s string) int { return len(utf16.Encode([]rune(s))) }

// worst has as much as there can be of everything, all of it hostile.
func worst(t *testing.T) *incident.Incident {
	t.Helper()
	b, err := incident.NewBook(incident.Options{Code: func(string) audit.Text { return audit.Text(strings.Repeat(hostile+strings.Repeat("<", 300)+"\n", 40)) }})
	if err != nil {
		t.Fatal(err)
	}
	var id string
	for n := range 40 {
		run := fmt.Sprint("run-", n)
		b.Observe(&audit.Event{Run: run, Kind: audit.KindStart, Start: &audit.Request{
			Agent: hostile + audit.Text(strings.Repeat("<", 1000)), Conversation: hostile, Image: audit.ImageRef{Name: "shell"}, Profile: "offline", Code: audit.CodeRef{SHA256: strings.Repeat("a", 64)},
		}})
		for k := range 40 {
			b.Observe(&audit.Event{Run: run, Kind: audit.KindQuery, Query: &audit.Query{Name: audit.Text(fmt.Sprint(k%12, hostile, strings.Repeat("&", 300))), Decision: audit.Blocked},
				Process: &audit.Process{Argv: []audit.Text{hostile, audit.Text(strings.Repeat("<", 1000))}}})
		}
		id = b.Raise(incident.Alarm{Time: time.Now(), Rule: fmt.Sprint("rule", n), Subject: hostile, Text: hostile + audit.Text(strings.Repeat("<", 1000)), Run: run})
	}
	if err := b.Acknowledge(id, incident.Ack{By: hostile, Note: hostile}); err != nil {
		t.Fatal(err)
	}
	b.Complete()
	return b.Get(id)
}

// texts are all that Slack may take for markup.
func texts(t *testing.T, blocks []slack.Block) (all []string) {
	t.Helper()
	data, err := json.Marshal(blocks)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case string:
			all = append(all, v)
		}
	}
	walk(v)
	return all
}

func TestNothingIsMarkupAndAllFits(t *testing.T) {
	i := worst(t)
	n := &sink.Notice{What: sink.Opened, Incident: i}
	digest := &sink.Notice{What: sink.Opened, Incident: i}
	for range 200 {
		digest.CatchUp = append(digest.CatchUp, i)
	}
	for _, n := range []*sink.Notice{n, digest, {What: sink.Test, Incident: i}} {
		blocks := Blocks(n, message.Options{Host: "host", CodeLines: 20, Runbook: "https://runbook.example/x", WebURL: "https://web.example/"})
		if len(blocks) > maxBlocks || len(blocks) < 2 {
			t.Errorf("%d blocks", len(blocks))
		}
		if header := blocks[0].(*slack.HeaderBlock).Text.Text; units(header) > maxHeader {
			t.Errorf("a header of %d", units(header))
		}
		for _, text := range append(texts(t, blocks), Text(n)) {
			if n := units(text); n > maxSection || !utf8.ValidString(text) {
				t.Errorf("a text of %d, valid: %v", n, utf8.ValidString(text))
			}
			for _, bad := range []string{"<", ">", "\x1b", "\u202e", "\u2066", "\x00"} {
				if strings.Contains(text, bad) {
					t.Errorf("%q in %.200q", bad, text)
				}
			}
			if strings.Count(text, "```")%2 != 0 {
				t.Errorf("code that does not end: %.200q", text)
			}
			for rest := text; strings.Contains(rest, "&"); {
				rest = rest[strings.IndexByte(rest, '&')+1:]
				if !strings.HasPrefix(rest, "amp;") && !strings.HasPrefix(rest, "lt;") && !strings.HasPrefix(rest, "gt;") {
					t.Errorf("a cut entity: %.40q", rest)
				}
			}
		}
	}
}

// Astral characters fill what there is to fill: each is two in UTF-16.
func TestAstral(t *testing.T) {
	i := &incident.Incident{ID: "abc", State: incident.Open, Opened: time.Now(), Alarms: []incident.Alarm{{Rule: "spike.run", Text: audit.Text(strings.Repeat("😀", 4000))}},
		Runs: []incident.Run{{Run: "run-1", Agent: audit.Text(strings.Repeat("😀", 4000)), Code: audit.Text(strings.Repeat(strings.Repeat("😀", 50)+"\n", 40))}}}
	n := &sink.Notice{What: sink.Opened, Incident: i}
	blocks := Blocks(n, message.Options{CodeLines: 40})
	header := blocks[0].(*slack.HeaderBlock).Text.Text
	if units(header) > maxHeader || units(header) < maxHeader-1 || units(Text(n)) > maxText {
		t.Errorf("a header of %d, a text of %d", units(header), units(Text(n)))
	}
	for _, text := range texts(t, blocks) {
		if units(text) > maxSection {
			t.Errorf("a text of %d", units(text))
		}
	}
}

// A digest shows the most severe, however late they came, and says whose they are and what to do.
func TestDigest(t *testing.T) {
	at := time.Now()
	n := &sink.Notice{What: sink.Opened}
	for k := range 60 {
		n.CatchUp = append(n.CatchUp, &incident.Incident{ID: fmt.Sprintf("id-%02d", k), State: incident.Open, Severity: incident.Warning, Opened: at.Add(time.Duration(k) * time.Second), Alarms: []incident.Alarm{{Text: "noise"}}})
	}
	n.CatchUp[3].Severity, n.CatchUp[59].Severity = incident.Critical, incident.Critical
	n.Incident = n.CatchUp[0]
	all := strings.Join(texts(t, Blocks(n, message.Options{Host: "box7"})), "\n")
	worst, second, newest := strings.Index(all, "id-59 CRITICAL"), strings.Index(all, "id-03 CRITICAL"), strings.Index(all, "id-58 WARNING")
	if worst < 0 || second < worst || newest < second || strings.Contains(all, "id-00") {
		t.Errorf("at %d, %d and %d in %s", worst, second, newest, all)
	}
	for _, want := range []string{"`box7`", "`sudo proctor alerts list`", "and 20 more"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not said", want)
		}
	}
}

// All that on-call needs is said.
func TestWhatIsSaid(t *testing.T) {
	i := worst(t)
	data, err := json.Marshal(Blocks(&sink.Notice{What: sink.Opened, Incident: i}, message.Options{Host: "box7", CodeLines: 20, Runbook: "https://runbook.example/x", WebURL: "https://web.example/"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{i.ID, "box7", "run-0", "shell, offline", strings.Repeat("a", 64), "proctor audit show run-0", "https://web.example/run-0", "https://runbook.example/x", "proctor alerts ack " + i.ID, "1600", "160 ×"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%q is not said", want)
		}
	}
	data, err = json.Marshal(Blocks(&sink.Notice{What: sink.Opened, Incident: i}, message.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "*Code*") {
		t.Error("code that is to be hidden is shown")
	}
}

func TestEscape(t *testing.T) {
	for _, test := range []struct {
		in   string
		most int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"a<b", 6, "a&lt;b"}, {"a<b", 5, "a…"}, {"a<", 5, "a&lt;"}, {"ééé", 3, "ééé"}, {"éééé", 3, "éé…"}, {"", 3, ""}, {"😀😀", 4, "😀😀"}, {"😀😀", 3, "😀…"}, {"a😀", 2, "a…"}, {"😀😀😀", 4, "😀…"}, {"&&", 10, "&amp;&amp;"}, {"&&", 9, "&amp;…"},
	} {
		if got := escape(test.in, test.most); got != test.want {
			t.Errorf("%q in %d: %q, want %q", test.in, test.most, got, test.want)
		}
	}
}
