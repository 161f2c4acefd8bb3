package notify

import (
	"fmt"
	"maps"
	"net/url"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"proctor/alerts/incident"
	"proctor/alerts/sign"
	"proctor/strictyaml"
	"proctor/supervisor/profile"
)

// needs are the fields of each type of sink, without those that all may have.
var needs = map[string]struct{ must, may []string }{
	"slack":         {[]string{"token_file", "channel"}, []string{"url"}},
	"slack-webhook": {[]string{"url_file"}, nil},
	"alertmanager":  {[]string{"url"}, nil},
	"webhook":       {[]string{"url", "secret_file"}, nil},
	"pagerduty":     {[]string{"routing_key_file"}, []string{"url"}},
}

func (s *Sink) fields() map[string]strictyaml.Text {
	return map[string]strictyaml.Text{
		"url": s.URL, "url_file": s.URLFile, "token_file": s.TokenFile, "channel": s.Channel, "secret_file": s.SecretFile, "routing_key_file": s.RoutingKeyFile,
	}
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// Check says what is wrong, by the field below alerts, as far as that does not depend on the host.
func (a *Alerts) Check() error {
	if err := a.Rules.Check(); err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(a.Signs)) {
		at := "alerts.signs." + kind
		switch s := a.Signs[kind]; {
		case !slices.Contains(sign.Kinds(), sign.Kind(kind)):
			return strictyaml.BadField(at, "there is no such sign: there are %v", sign.Kinds())
		case !s.Off && !s.Severity.Given:
			return strictyaml.BadField(at, "says nothing: write severity, or off: true, or remove it")
		case s.Off && s.Severity.Given:
			return strictyaml.BadField(at+".off", "true stands beside severity, which has no effect then: remove one of them")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Sinks)) {
		s, at := a.Sinks[name], "alerts.sinks."+name
		if !validName.MatchString(name) {
			return strictyaml.BadField(at, "%q is no name of a sink: write lower-case letters, digits and -, at most 32", name)
		}
		if err := s.check(at); err != nil {
			return err
		}
	}
	if err := a.checkRoutes(); err != nil {
		return err
	}
	for _, link := range []struct {
		field string
		url   strictyaml.Text
	}{{"runbook", a.Runbook}, {"web_url", a.WebURL}} {
		if link.url != "" {
			if err := checkURL(string(link.url), "messages would show: leave it out"); err != nil {
				return strictyaml.BadField("alerts."+link.field, "%v", err)
			}
		}
	}
	return nil
}

func (s *Sink) check(at string) error {
	need, ok := needs[s.Type]
	if !ok {
		return strictyaml.BadField(at+".type", "%q is no type of sink: write one of %v", s.Type, slices.Sorted(maps.Keys(needs)))
	}
	fields := s.fields()
	if missing := slices.DeleteFunc(slices.Clone(need.must), func(f string) bool { return fields[f] != "" }); len(missing) > 0 {
		return strictyaml.BadField(at, "a sink of type %s needs %s", s.Type, strings.Join(missing, " and "))
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if fields[field] != "" && !slices.Contains(need.must, field) && !slices.Contains(need.may, field) {
			return strictyaml.BadField(at+"."+field, "a sink of type %s has no %s: remove it", s.Type, field)
		}
	}
	fields["ca_file"] = s.CAFile
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if file := string(fields[field]); strings.HasSuffix(field, "_file") && file != "" && !filepath.IsAbs(file) {
			return strictyaml.BadField(at+"."+field, "%q depends on where the supervisor is started: write an absolute path", file)
		}
	}
	if s.URL != "" {
		if err := checkURL(string(s.URL), "would be logged: use a sink that takes a file"); err != nil {
			return strictyaml.BadField(at+".url", "%v", err)
		}
	}
	return nil
}

func (a *Alerts) checkRoutes() error {
	told := map[string]bool{}
	for n, r := range a.Routes {
		at := fmt.Sprintf("alerts.routes[%d]", n)
		if len(r.Sinks) == 0 {
			return strictyaml.BadField(at, "it names no sinks: write sinks: [NAME] with one of alerts.sinks")
		}
		for k, name := range r.Sinks {
			if _, ok := a.Sinks[name]; !ok {
				return strictyaml.BadField(fmt.Sprintf("%s.sinks[%d]", at, k), "%q is not among alerts.sinks: there are %q", name, slices.Sorted(maps.Keys(a.Sinks)))
			}
			told[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Sinks)) {
		if len(a.Routes) > 0 && !told[name] {
			return strictyaml.BadField("alerts.sinks."+name, "no route names it, so it is told of nothing: name it in one of alerts.routes, or remove it")
		}
	}
	return nil
}

// checkURL says what is wrong with a link; a password in it does what password says.
func checkURL(text, password string) error {
	u, err := url.Parse(text)
	switch {
	case err == nil && u.User != nil:
		return fmt.Errorf("it has a password, which %s", password)
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is no URL: write https://HOST/PATH", text)
	}
	return nil
}

// CheckHost says what of it does not fit this host and the profiles in a directory, and reads the
// sinks' secrets. Nobody is told of anything.
func (a *Alerts) CheckHost(profiles string) error {
	for n, r := range a.Routes {
		for k, name := range r.Profiles {
			if _, err := profile.Find(profiles, name); err != nil {
				return fmt.Errorf("configuration: alerts.routes[%d].profiles[%d]: %w", n, k, err)
			}
		}
		for k, name := range r.Callers {
			if !isUser(name) {
				return fmt.Errorf("configuration: alerts.routes[%d].callers[%d]: %q: no such user: write the name or the number of one that there is", n, k, name)
			}
		}
	}
	_, err := a.Open()
	return err
}

// isUser takes numbers as they are, as the part callers does.
func isUser(name string) bool {
	if strings.Trim(name, "0123456789") == "" {
		_, err := strconv.ParseUint(name, 10, 32)
		return err == nil
	}
	_, err := user.Lookup(name)
	return err == nil
}

// UntoldFix is what to do about [Alerts.Untold].
const UntoldFix = "add a route without conditions, such as {sinks: [NAME]}, to alerts.routes"

// Untold reports whether there are incidents that no route fits, of which nobody is told.
func (a *Alerts) Untold() bool {
	return len(a.Routes) > 0 && !slices.ContainsFunc(a.Routes, func(r Route) bool {
		return r.Severity.Severity == incident.Info && len(r.Profiles) == 0 && len(r.Callers) == 0
	})
}
