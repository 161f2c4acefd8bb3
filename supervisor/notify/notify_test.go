package notify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sign"
	"proctor/strictyaml"
)

type file struct {
	Alerts Alerts `yaml:"alerts"`
}

func parse(text string) (*Alerts, error) {
	var f file
	if err := strictyaml.Decode("proctor.yaml", []byte(text), &f); err != nil {
		return nil, err
	}
	if err := f.Alerts.Check(); err != nil {
		return nil, strictyaml.Locate("proctor.yaml", []byte(text), "", err)
	}
	return &f.Alerts, nil
}

func TestCheckRefuses(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"alerts: {sinks: {a: {type: mail}}}", `"mail" is no type of sink`},
		{"alerts:\n  sinks:\n    a: {type: slack, channel: C1}", "proctor.yaml:3: alerts.sinks.a: a sink of type slack needs token_file"},
		{"alerts: {sinks: {a: {type: alertmanager, url: ftp://x}}}", "is no URL"},
		{"alerts: {sinks: {a: {type: alertmanager, url: http://u:p@x/}}}", "has a password"},
		{"alerts: {sinks: {a: {type: alertmanager, url: http://x, channel: C1}}}", "has no channel"},
		{"alerts: {sinks: {A B: {type: alertmanager, url: http://x}}}", "is no name of a sink"},
		{"alerts: {routes: [{sinks: [b]}]}", `alerts.routes[0].sinks[0]: "b" is not among alerts.sinks`},
		{"alerts: {routes: [{severity: critical}]}", "names no sinks"},
		{"alerts: {routes: [{severity: loud, sinks: [a]}]}", "write info, warning or critical"},
		{"alerts: {signs: {smoke: {off: true}}}", "there is no such sign"},
		{"alerts: {sinks: {a: {type: slack, token: x}}}", "token"},
		{"alerts: {run: {threshold: 0}}", "write a positive whole number"},
		{"alerts:\n  caller: {history: 0}", `proctor.yaml:2: alerts.caller.history: "0": write a positive whole number`},
		{"alerts: {caller: {factor: 0}}", `alerts.caller.factor: "0": write a number from 1`},
		{"alerts: {sinks: {a: {type: alertmanager, url: http://x}}, routes: [{severity: high, sinks: [a]}]}", `alerts.routes[0].severity: "high": write info, warning or critical`},
		{"alerts: {hide_code: maybe}", `alerts.hide_code: "maybe": a text stands where true or false belongs`},
		{"alerts: {caller: {window: 90d}}", "alerts.caller.window: 2160h0m0s is not between"},
		{"alerts: {signs: {escape: {}}}", "alerts.signs.escape: says nothing"},
		{"alerts: {signs: {escape: {off: false}}}", "alerts.signs.escape: says nothing"},
		{"alerts: {signs: {escape: {off: true, severity: info}}}", "alerts.signs.escape.off: true stands beside severity"},
		{"alerts: {caller: {off: true, history: 3}}", "alerts.caller.off: true stands beside history"},
		{"alerts: {run: {factor: 3}}", "alerts.run.factor: a run has no history"},
		{"alerts: {run: {history: 3}}", "alerts.run.history: a run has no history"},
		{"alerts: {runbook: wiki}", `alerts.runbook: "wiki" is no URL`},
		{"alerts: {web_url: 'javascript:alert(1)'}", `alerts.web_url: "javascript:alert(1)" is no URL`},
		{"alerts: {web_url: 'https://u:p@x/'}", "alerts.web_url: it has a password, which messages would show"},
		{"alerts: {sinks: {a: {type: slack-webhook, url_file: slack.url}}}", `alerts.sinks.a.url_file: "slack.url" depends on where`},
		{"alerts: {sinks: {a: {type: alertmanager, url: http://x, ca_file: ./ca.pem}}}", "alerts.sinks.a.ca_file"},
		{"alerts: {sinks: {a: {type: alertmanager, url: http://x}, b: {type: alertmanager, url: http://y}}, routes: [{sinks: [a]}]}", "alerts.sinks.b: no route names it"},
	} {
		if _, err := parse(test.text); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.text, err, test.want)
		}
	}
}

func TestOpenReadsSecrets(t *testing.T) {
	dir := t.TempDir()
	secretFile := filepath.Join(dir, "secret")
	a, err := parse("alerts: {sinks: {b: {type: webhook, url: 'http://x/', secret_file: " + secretFile + "}, a: {type: alertmanager, url: 'http://y'}}}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Open(); err == nil || !strings.Contains(err.Error(), "alerts.sinks.b") || !strings.Contains(err.Error(), secretFile) {
		t.Errorf("without the file: %v", err)
	}
	if err := os.WriteFile(secretFile, []byte("0123456789abcdef\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Open(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("with a file for all: %v", err)
	}
	if err := os.Chmod(secretFile, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secretFile, []byte("1234567\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Open(); err == nil || !strings.Contains(err.Error(), "alerts.sinks.b.secret_file: "+secretFile+": has less than 8 bytes, as no URL, token or key has") {
		t.Errorf("with a short one: %v", err)
	}
	if err := os.WriteFile(secretFile, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	routes, err := a.Open()
	if err != nil || len(routes) != 2 || routes[0].Name != "a" || routes[1].Name != "b" {
		t.Errorf("%+v, %v", routes, err)
	}
}

// What depends on the host is checked, too, without anything being sent.
func TestCheckHost(t *testing.T) {
	profiles := t.TempDir()
	if err := os.WriteFile(filepath.Join(profiles, "data.yaml"), []byte("description: data\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "url")
	for route, want := range map[string]string{
		"{sinks: [a]}": "",
		"{profiles: [offline, data], callers: [root, 0, 4242], sinks: [a]}": "",
		"{profiles: [offline, dat], sinks: [a]}":                            `alerts.routes[0].profiles[1]: no profile "dat" in ` + profiles,
		"{callers: [root, nobody-of-this-name], sinks: [a]}":                `alerts.routes[0].callers[1]: "nobody-of-this-name": no such user`,
		"{callers: [99999999999], sinks: [a]}":                              `alerts.routes[0].callers[0]: "99999999999": no such user`,
		"{callers: [''], sinks: [a]}":                                       `alerts.routes[0].callers[0]: "": no such user`,
		"{sinks: [b]}":                                                      "alerts.sinks.b.url_file: " + missing + ": there is no such file: put the secret alone into it",
	} {
		sinks := "a: {type: alertmanager, url: 'http://192.0.2.1/'}"
		if strings.Contains(route, "[b]") {
			sinks = "b: {type: slack-webhook, url_file: " + missing + "}"
		}
		a, err := parse("alerts: {sinks: {" + sinks + "}, routes: [" + route + "]}")
		if err != nil {
			t.Errorf("%s: %v", route, err)
			continue
		}
		if err := a.CheckHost(profiles); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", route, err, want)
		}
	}
}

func TestUntold(t *testing.T) {
	for routes, want := range map[string]bool{
		"[]": false, "[{sinks: [a]}]": false, "[{severity: info, sinks: [a]}]": false, "[{severity: critical, sinks: [a]}, {sinks: [a]}]": false,
		"[{severity: warning, sinks: [a]}]": true, "[{profiles: [offline], sinks: [a]}, {callers: [ann], sinks: [a]}]": true,
	} {
		a, err := parse("alerts: {sinks: {a: {type: alertmanager, url: 'http://y'}}, routes: " + routes + "}")
		if err != nil || a.Untold() != want {
			t.Errorf("%s: %t, %v", routes, !want, err)
		}
	}
}

func TestRoutes(t *testing.T) {
	a, err := parse("alerts: {sinks: {a: {type: alertmanager, url: 'http://y'}, b: {type: alertmanager, url: 'http://z'}}, routes: [{severity: critical, sinks: [a]}, {profiles: [p], callers: [ann], sinks: [b]}]}")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		severity        incident.Severity
		profile, caller string
		a, b            bool
	}{
		{incident.Critical, "x", "0", true, false}, {incident.Warning, "x", "0", false, false}, {incident.Warning, "p", "7 (ann)", false, true}, {incident.Critical, "p", "7 (ann)", true, true}, {incident.Warning, "p", "7 (bob)", false, false},
	} {
		i := &incident.Incident{Severity: test.severity, Parties: []incident.Party{{Profile: test.profile, Caller: test.caller}}}
		if a.wants("a")(i) != test.a || a.wants("b")(i) != test.b {
			t.Errorf("%+v", test)
		}
	}
	// A sink for some hears nothing of others that have a part in an incident.
	if a.only("a") != nil {
		t.Error("a sink for everybody's does not hear of all runs")
	}
	for run, fits := range map[incident.Run]bool{{Profile: "p", Caller: "7 (ann)"}: true, {Profile: "p", Caller: "8 (bob)"}: false, {Profile: "q", Caller: "7 (ann)"}: false} {
		if a.only("b")(run) != fits {
			t.Errorf("%+v: %v", run, !fits)
		}
	}
	if (&Alerts{}).wants("a") != nil {
		t.Error("without routes not all is told")
	}
}

func TestWatched(t *testing.T) {
	a, err := parse("alerts: {resolve_after: 1d, signs: {escape: {severity: critical}, mismatch: {off: true}}, run: {threshold: 3}}")
	if err != nil {
		t.Fatal(err)
	}
	if a.Quiet() != 24*time.Hour {
		t.Errorf("quiet after %s", a.Quiet())
	}
	r := a.Watched()
	if _, on := r.Signs[sign.Mismatch]; on || r.Signs[sign.Escape] != incident.Critical || r.Signs[sign.Metadata] != incident.Critical || r.Spikes["run"].Threshold != 3 {
		t.Errorf("%+v", r)
	}
}
