// Package notify is how operators write down, in proctor.yaml, what is an alarm and who is told.
package notify

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"proctor/alerts"
	"proctor/alerts/incident"
	"proctor/alerts/message"
	"proctor/alerts/outbox"
	"proctor/alerts/sign"
	"proctor/alerts/sink"
	"proctor/alerts/sink/alertmanager"
	"proctor/alerts/sink/pagerduty"
	"proctor/alerts/sink/slackbot"
	"proctor/alerts/sink/slackhook"
	"proctor/alerts/sink/webhook"
	"proctor/alerts/spike"
	"proctor/netpolicy/secret"
	"proctor/strictyaml"
	"proctor/supervisor/profile"
	"proctor/supervisor/thresholds"
)

// Alerts is the part alerts of proctor.yaml.
type Alerts struct {
	thresholds.Rules `yaml:",inline"`
	Signs            map[string]Sign     `yaml:"signs"`         // by kind; what is left out is as [alerts.DefaultSigns] says
	ResolveAfter     strictyaml.Duration `yaml:"resolve_after"` // without an attempt or alarm; default 15m
	ReopenWithin     strictyaml.Duration `yaml:"reopen_within"` // of being resolved; default 24h
	Sinks            map[string]Sink     `yaml:"sinks"`         // by a name that routes, tests and metrics have
	Routes           []Route             `yaml:"routes"`        // an incident goes to the sinks of each that fits; none: to all sinks
	Runbook          strictyaml.Text     `yaml:"runbook"`       // a link that messages have
	WebURL           strictyaml.Text     `yaml:"web_url"`       // of a run, before its id, likewise
	HostName         strictyaml.Text     `yaml:"host_name"`     // what messages call this host; default: its name
	HideCode         bool                `yaml:"hide_code"`     // messages have none of the code
}

// A Sign is what becomes of a single act that somebody should hear of.
type Sign struct {
	Severity Severity `yaml:"severity"`
	Off      bool     `yaml:"off"`
}

// A Severity is incident's, and may be left out.
type Severity struct {
	incident.Severity
	Given bool
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (s *Severity) UnmarshalYAML(n ast.Node) error {
	if err := s.UnmarshalText([]byte(strictyaml.Scalar(n))); err != nil {
		return strictyaml.Refuse(n, "write info, warning or critical")
	}
	s.Given = true
	return nil
}

// A Sink is somewhere to tell. Secrets stand in files of their own, with mode 0600.
type Sink struct {
	Type           string          `yaml:"type"`
	URL            strictyaml.Text `yaml:"url"`              // alertmanager and webhook; of slack and pagerduty, instead of theirs
	URLFile        strictyaml.Text `yaml:"url_file"`         // slack-webhook: a file with its URL, which is a secret
	TokenFile      strictyaml.Text `yaml:"token_file"`       // slack: a file with the bot's token
	Channel        strictyaml.Text `yaml:"channel"`          // slack: its id
	SecretFile     strictyaml.Text `yaml:"secret_file"`      // webhook: a file with what requests are signed by
	RoutingKeyFile strictyaml.Text `yaml:"routing_key_file"` // pagerduty
	CAFile         strictyaml.Text `yaml:"ca_file"`          // authorities that its certificate is verified by; default: the system's
}

// A Route says who is told of what. What is left out fits all.
type Route struct {
	Severity Severity `yaml:"severity"` // at least
	Profiles []string `yaml:"profiles"`
	Callers  []string `yaml:"callers"` // names or numbers of users
	Sinks    []string `yaml:"sinks"`
}

// Watched is what is an alarm.
func (a *Alerts) Watched() alerts.Rules {
	r := alerts.Rules{Spikes: a.Rules.Over(spike.Defaults()), Signs: alerts.DefaultSigns()}
	for kind, s := range a.Signs {
		if s.Off {
			delete(r.Signs, sign.Kind(kind))
		} else if s.Severity.Given {
			r.Signs[sign.Kind(kind)] = s.Severity.Severity
		}
	}
	return r
}

// Quiet and Reopen are the times, 0 for the defaults.
func (a *Alerts) Quiet() time.Duration  { return time.Duration(a.ResolveAfter) }
func (a *Alerts) Reopen() time.Duration { return time.Duration(a.ReopenWithin) }

// CodeLines is how much of the code messages have.
const CodeLines = 20

// Open reads the sinks' secrets and makes the sinks.
func (a *Alerts) Open() ([]outbox.Route, error) {
	m := message.Options{Host: string(a.HostName), WebURL: string(a.WebURL), Runbook: string(a.Runbook), CodeLines: CodeLines}
	if a.HideCode {
		m.CodeLines = 0
	}
	if m.Host == "" {
		m.Host, _ = os.Hostname()
	}
	var routes []outbox.Route
	for _, name := range slices.Sorted(maps.Keys(a.Sinks)) {
		s := a.Sinks[name]
		made, err := s.open(m)
		if err != nil {
			return nil, fmt.Errorf("configuration: alerts.sinks.%s.%w", name, err)
		}
		routes = append(routes, outbox.Route{Name: name, Sink: made, Wants: a.wants(name), Only: a.only(name)})
	}
	return routes, nil
}

// wants is which incidents a sink is told of.
func (a *Alerts) wants(name string) func(*incident.Incident) bool {
	if len(a.Routes) == 0 {
		return nil
	}
	return func(i *incident.Incident) bool {
		return slices.ContainsFunc(a.Routes, func(r Route) bool {
			return slices.Contains(r.Sinks, name) && i.Severity >= r.Severity.Severity && (r.everybody() || slices.ContainsFunc(i.Parties, r.fits))
		})
	}
}

// only is which runs a sink is told of, nil for all.
func (a *Alerts) only(name string) func(incident.Run) bool {
	var routes []Route
	for _, r := range a.Routes {
		if slices.Contains(r.Sinks, name) {
			routes = append(routes, r)
		}
	}
	if len(routes) == 0 || slices.ContainsFunc(routes, Route.everybody) {
		return nil
	}
	return func(run incident.Run) bool {
		return slices.ContainsFunc(routes, func(r Route) bool { return r.fits(run.Party()) })
	}
}

func (r Route) everybody() bool { return len(r.Profiles) == 0 && len(r.Callers) == 0 }

// fits reports whether somebody is of the route's profiles and callers.
func (r Route) fits(p incident.Party) bool {
	of := func(list []string, match func(string) incident.Matcher) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return match(s).MatchParty(p) })
	}
	return of(r.Profiles, func(p string) incident.Matcher { return incident.Matcher{Profile: p} }) &&
		of(r.Callers, func(c string) incident.Matcher { return incident.Matcher{Caller: c} })
}

func (s *Sink) open(m message.Options) (sink.Sink, error) {
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	switch s.Type {
	case "slack":
		token, err := read("token_file", s.TokenFile)
		return slackbot.New(slackbot.Options{Token: token, Channel: string(s.Channel), APIURL: string(s.URL), Client: client, Message: m}), err
	case "slack-webhook":
		to, err := read("url_file", s.URLFile)
		if err == nil && checkURL(string(to.Reveal()), "") != nil {
			err = errors.New("url_file: " + string(s.URLFile) + " has no URL: write https://HOST/PATH there")
		}
		return slackhook.New(slackhook.Options{URL: to, Client: client, Message: m}), err
	case "webhook":
		key, err := read("secret_file", s.SecretFile)
		return webhook.New(webhook.Options{URL: string(s.URL), Secret: key, Client: client, Message: m}), err
	case "pagerduty":
		key, err := read("routing_key_file", s.RoutingKeyFile)
		return pagerduty.New(pagerduty.Options{RoutingKey: key, URL: string(s.URL), Client: client, Message: m}), err
	default:
		return alertmanager.New(alertmanager.Options{URL: string(s.URL), Client: client, Message: m}), nil
	}
}

// read is the secret that a key names the file of.
func read(key string, file strictyaml.Text) (secret.Secret, error) {
	s, err := profile.SecretFile(string(file))
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("there is no such file: put the secret alone into it, with mode 0600")
	}
	if err != nil {
		return s, fmt.Errorf("%s: %s: %w", key, file, err)
	}
	return s, nil
}

func (s *Sink) client() (*http.Client, error) {
	if s.CAFile == "" {
		return sink.NewClient(nil), nil
	}
	data, err := os.ReadFile(string(s.CAFile))
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w: write a file with certificates of authorities, in PEM", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("ca_file: %s has no certificate in PEM: write a file with those of authorities", s.CAFile)
	}
	return sink.NewClient(roots), nil
}
