package egress

import (
	"fmt"
	"net/textproto"
	"path"
	"regexp"
	"slices"
	"strings"

	"proctor/strictyaml"
)

// secretMark is where a format has the secret.
const secretMark = "{secret}"

var (
	credentialSyntax = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	tokenSyntax      = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$") // RFC 9110, token
	parameterSyntax  = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,128}$`)            // what no URL writes in two ways
	placeholderForm  = regexp.MustCompile(`^[A-Za-z0-9._~-]{8,256}$`)
	methodSyntax     = regexp.MustCompile(`^[A-Z]+(-[A-Z]+)*$`)
	variableSyntax   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	printable        = regexp.MustCompile(`^[ -~]*$`)
	visible          = regexp.MustCompile(`^[!-~]*$`)
)

// ownHeaders are about the connection or the message, so that the gateway sets them itself.
var ownHeaders = []string{
	"Connection", "Content-Length", "Expect", "Host", "Http2-Settings", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func (p *Policy) checkCredentials() error {
	if n := len(p.Credentials); n > maxCredentials {
		return strictyaml.BadField("credentials", "has %d entries, at most %d are taken: make another profile", n, maxCredentials)
	}
	names, hosts := map[string]int{}, map[string]int{}
	for i := range p.Credentials {
		c, field := &p.Credentials[i], fmt.Sprintf("credentials[%d]", i)
		if err := c.check(field); err != nil {
			return err
		}
		if d := p.Host(c.Host, DefaultPort); !d.Allowed {
			return strictyaml.BadField(field+".host", "%q: %s, and a credential is for a host granted on %d: add it to allow", c.Host, d.Rule, DefaultPort)
		}
		if first, ok := names[c.Name]; ok {
			return strictyaml.BadField(field+".name", "%q is the name of credentials[%d], too: change one", c.Name, first)
		}
		// Two could want the same place of one request.
		if first, ok := hosts[c.Host]; ok {
			return strictyaml.BadField(field+".host", "%q has credentials[%d] already, and a host has one: remove one", c.Host, first)
		}
		names[c.Name], hosts[c.Host] = i, i
	}
	return nil
}

func (c *Credential) check(field string) error {
	if !credentialSyntax.MatchString(c.Name) {
		return strictyaml.BadField(field+".name", `%q: write 1 to 64 of a-z, 0-9, ".", "_" and "-", first a letter or digit`, clip(c.Name))
	}
	if strings.Contains(c.Host, "*") {
		return strictyaml.BadField(field+".host", "%q: a secret goes to one host: write its name without *", clip(c.Host))
	}
	host, err := grantHost(c.Host)
	if err != nil {
		return strictyaml.BadField(field+".host", "%v", err)
	}
	c.Host = host
	if err := c.checkPlace(field); err != nil {
		return err
	}
	if err := c.Source.check(field + ".source"); err != nil {
		return err
	}
	return c.checkNarrowing(field)
}

// checkPlace is about where the secret goes.
func (c *Credential) checkPlace(field string) error {
	set := 0
	for _, s := range []string{c.Header, c.Query, c.Basic, c.Placeholder} {
		if s != "" {
			set++
		}
	}
	if set != 1 {
		return strictyaml.BadField(field, "has %d of header, query, basic and placeholder: write exactly one, such as header: Authorization", set)
	}
	switch {
	case c.Header != "":
		if !tokenSyntax.MatchString(c.Header) {
			return strictyaml.BadField(field+".header", "%q is no name of a header field: write one such as Authorization", clip(c.Header))
		}
		c.Header = textproto.CanonicalMIMEHeaderKey(c.Header)
		if slices.Contains(ownHeaders, c.Header) {
			return strictyaml.BadField(field+".header", "%q is about the connection or the message and set by the gateway: use another field", c.Header)
		}
		if c.Format == "" {
			c.Format = secretMark
		}
	case c.Query != "" && !parameterSyntax.MatchString(c.Query):
		return strictyaml.BadField(field+".query", `%q: write 1 to 128 letters, digits, ".", "_", "~" and "-"`, clip(c.Query))
	case c.Basic != "" && (len(c.Basic) > 256 || !printable.MatchString(c.Basic) || strings.Contains(c.Basic, ":")):
		return strictyaml.BadField(field+".basic", "%q: write at most 256 printable ASCII characters without a colon", clip(c.Basic))
	case c.Placeholder != "" && !placeholderForm.MatchString(c.Placeholder):
		return strictyaml.BadField(field+".placeholder", `%q: write 8 to 256 letters, digits, ".", "_", "~" and "-"`, clip(c.Placeholder))
	}
	return c.checkFormat(field + ".format")
}

func (c *Credential) checkFormat(field string) error {
	switch {
	case c.Header == "" && c.Format != "":
		return strictyaml.BadField(field, "is for header alone: remove it")
	case c.Header == "":
	case strings.Count(c.Format, secretMark) != 1:
		return strictyaml.BadField(field, `%q has %s %d times: write it once, such as "Bearer %[2]s"`, clip(c.Format), secretMark, strings.Count(c.Format, secretMark))
	case len(c.Format) > 1024 || !printable.MatchString(c.Format) || strings.TrimSpace(c.Format) != c.Format:
		return strictyaml.BadField(field, "%q: write one line of at most 1024 printable ASCII characters, without space around it", clip(c.Format))
	}
	return nil
}

func (s *Source) check(field string) error {
	set := 0
	for _, given := range []bool{s.File != "", s.Env != "", s.Command != nil} {
		if given {
			set++
		}
	}
	if set != 1 {
		return strictyaml.BadField(field, "has %d of file, env and command: write exactly one, such as file: /etc/proctor/secrets/api", set)
	}
	switch {
	case s.File != "" && !absolute(s.File):
		return strictyaml.BadField(field+".file", "%q: write an absolute path without . and .., such as /etc/proctor/secrets/api", clip(s.File))
	case s.Env != "" && (len(s.Env) > 256 || !variableSyntax.MatchString(s.Env)):
		return strictyaml.BadField(field+".env", "%q is no name of a variable: write letters, digits and _", clip(s.Env))
	case s.Command == nil:
		return nil
	case len(s.Command) == 0 || len(s.Command) > 64 || !absolute(s.Command[0]):
		return strictyaml.BadField(field+".command", "write 1 to 64 words, the first a program's absolute path, such as [/usr/bin/pass, show, api]")
	}
	for i, word := range s.Command {
		// A word may be what nobody should see, so it is not shown.
		if len(word) > 4096 || strings.IndexByte(word, 0) >= 0 {
			return strictyaml.BadField(fmt.Sprintf("%s.command[%d]", field, i), "has %d bytes, or a NUL: write at most 4096 bytes of text", len(word))
		}
	}
	return nil
}

func absolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) < 4096 && strings.IndexByte(p, 0) < 0
}

// checkNarrowing is about methods and paths. An empty list that was written is neither
// everything nor of any use.
func (c *Credential) checkNarrowing(field string) error {
	const rule = "has %d entries: write 1 to %d, or leave the key out for any"
	if n := len(c.Methods); c.Methods != nil && (n == 0 || n > 16) {
		return strictyaml.BadField(field+".methods", rule, n, 16)
	}
	for i, m := range c.Methods {
		at := fmt.Sprintf("%s.methods[%d]", field, i)
		switch {
		case len(m) > 32 || !methodSyntax.MatchString(m):
			return strictyaml.BadField(at, "%q: write a method in upper-case letters, such as GET", clip(m))
		case m == "CONNECT":
			return strictyaml.BadField(at, "%q asks for a tunnel, which no host of a credential gives: remove it", m)
		case slices.Contains(c.Methods[:i], m):
			return strictyaml.BadField(at, "%q is listed twice: remove one", m)
		}
	}
	if n := len(c.Paths); c.Paths != nil && (n == 0 || n > 64) {
		return strictyaml.BadField(field+".paths", rule, n, 64)
	}
	for i, p := range c.Paths {
		if why := badPath(p); why != "" {
			return strictyaml.BadField(fmt.Sprintf("%s.paths[%d]", field, i), "%q %s", clip(p), why)
		}
	}
	return nil
}

// badPath refuses patterns that a gateway and a server could read in two ways.
func badPath(p string) string {
	beginning := strings.TrimSuffix(p, "*")
	switch {
	case !strings.HasPrefix(p, "/"):
		return "does not begin with /: write it as /v1/models, or with * at the end"
	case len(p) > 1024 || !visible.MatchString(p):
		return "is over 1024 bytes, or has spaces or other than ASCII: write printable ASCII"
	case strings.Contains(beginning, "*"):
		return "has * elsewhere than at its end: write a beginning and *"
	case strings.ContainsAny(beginning, "?#%\\"):
		return "has a query, a fragment, an escape or a backslash: write the plain path alone"
	case strings.Contains(beginning, "//") || strings.Contains(beginning+"/", "/./") || strings.Contains(beginning+"/", "/../"):
		return "has empty or dot segments: write the path without"
	}
	return ""
}
