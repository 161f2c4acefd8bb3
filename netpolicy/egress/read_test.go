package egress

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"proctor/strictyaml"
)

// netip's types are compared by value.
var compare = cmp.Options{cmpopts.EquateComparable(prefixes("10.0.0.0/8")[0])}

// read is a policy as a profile has it.
func read(content string) (*Policy, error) {
	var file struct {
		Egress Policy `yaml:"egress"`
	}
	if err := strictyaml.Decode("p.yaml", []byte(content), &file); err != nil {
		return nil, err
	}
	if err := file.Egress.Check(); err != nil {
		return nil, strictyaml.Locate("p.yaml", []byte(content), "egress", err)
	}
	return &file.Egress, nil
}

func mustRead(t testing.TB, content string) *Policy {
	t.Helper()
	p, err := read(content)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const full = `
egress:
  allow:
    - {host: API.Example.com., ports: [8443, 443]}
    - host: "*.Files.example.com"
      websocket: true
    - {cidr: 203.0.113.0/24, ports: [5432], protocol: tcp}
    - cidr: ::ffff:10.0.0.0/104
      ports: [5000, 4000]
      protocol: udp
    - host: bücher.example
  credentials:
    - name: api
      host: api.EXAMPLE.com
      header: authorization
      format: "Bearer {secret}"
      source: {file: /etc/proctor/secrets/api}
      methods: [GET, POST]
      paths: ["/v1/models*", /v1/chat]
    - {name: b, host: x.files.example.com, basic: "some user", source: {env: TOKEN}}
    - {name: c, host: y.files.example.com, query: key, source: {command: [/usr/bin/pass, show, c]}}
    - {name: d, host: xn--bcher-kva.example, placeholder: PROCTOR-TOKEN, source: {env: D}}
    - {name: e, host: z.files.example.com, header: x-api-key, source: {env: E}}
  limits: {queries: 5, names: 6, connections: 7, bytes_up: 100MiB, bytes_down: 2G, idle: 90s}
`

func TestRead(t *testing.T) {
	p := mustRead(t, full)
	want := &Policy{
		Allow: []Grant{
			{Host: "api.example.com", Ports: []uint16{443, 8443}, Protocol: "tcp"},
			{Host: "*.files.example.com", Ports: []uint16{443}, Protocol: "tcp", WebSocket: true},
			{CIDR: prefixes("203.0.113.0/24")[0], Ports: []uint16{5432}, Protocol: "tcp"},
			{CIDR: prefixes("10.0.0.0/8")[0], Ports: []uint16{4000, 5000}, Protocol: "udp"},
			{Host: "xn--bcher-kva.example", Ports: []uint16{443}, Protocol: "tcp"},
		},
		Credentials: []Credential{
			{Name: "api", Host: "api.example.com", Header: "Authorization", Format: "Bearer {secret}", Source: Source{File: "/etc/proctor/secrets/api"},
				Methods: []string{"GET", "POST"}, Paths: []string{"/v1/models*", "/v1/chat"}},
			{Name: "b", Host: "x.files.example.com", Basic: "some user", Source: Source{Env: "TOKEN"}},
			{Name: "c", Host: "y.files.example.com", Query: "key", Source: Source{Command: []string{"/usr/bin/pass", "show", "c"}}},
			{Name: "d", Host: "xn--bcher-kva.example", Placeholder: "PROCTOR-TOKEN", Source: Source{Env: "D"}},
			{Name: "e", Host: "z.files.example.com", Header: "X-Api-Key", Format: "{secret}", Source: Source{Env: "E"}},
		},
		Limits: Limits{Queries: 5, Names: 6, Connections: 7, BytesUp: 100 << 20, BytesDown: 2 << 30, Idle: 90 * time.Second},
	}
	if diff := cmp.Diff(want, p, compare); diff != "" {
		t.Error(diff)
	}
}

func TestReadNothing(t *testing.T) {
	for _, content := range []string{"egress: {}", "egress: {allow: []}", "egress: {allow: [], credentials: []}"} {
		p := mustRead(t, content)
		if d := p.Host("api.example", 443); d.Allowed || d.Rule != "no network granted" {
			t.Errorf("%s: %+v", content, d)
		}
		if p.Limits != defaults {
			t.Errorf("%s: limits %+v", content, p.Limits)
		}
	}
}

// The gateway gets the policy as JSON, and checks it again.
func TestJSON(t *testing.T) {
	for _, content := range []string{full, "egress: {}"} {
		p := mustRead(t, content)
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Policy
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if err := back.Check(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, &back, compare, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	}
	data, err := json.Marshal(mustRead(t, full))
	if err != nil || !strings.Contains(string(data), `"idle":"1m30s"`) || !strings.Contains(string(data), `"cidr":"10.0.0.0/8"`) || strings.Count(string(data), `"cidr"`) != 2 {
		t.Errorf("%s, %v", data, err)
	}
	var l Limits
	if err := json.Unmarshal([]byte(`{"idle":"soon"}`), &l); err == nil || !strings.Contains(err.Error(), `"soon"`) {
		t.Errorf("%v", err)
	}
	var p Policy
	if err := json.Unmarshal([]byte(`{"limits":{"names":-1}}`), &p); err != nil {
		t.Fatal(err)
	}
	if err := p.Check(); err == nil || !strings.HasPrefix(err.Error(), "limits.names: -1 is not from 1 to 10000") {
		t.Errorf("%v", err)
	}
}

// refusals are pairs of a file's content, whose first line is line 1, and the error's beginning.
func refusals(t *testing.T, pairs map[string]string) {
	t.Helper()
	for content, says := range pairs {
		p, err := read(content)
		switch {
		case err == nil:
			t.Errorf("%s\ntaken as %+v", content, p)
		case !strings.HasPrefix(err.Error(), "p.yaml:"+says):
			t.Errorf("%s\n%q\nwant %q", content, err, "p.yaml:"+says)
		case strings.Contains(err.Error(), "\n") || len(err.Error()) > 600:
			t.Errorf("%q is not one short line", err)
		}
	}
}

func TestGrantRefusals(t *testing.T) {
	refusals(t, map[string]string{
		"egress:\n  alow: []":                                                          `2: egress: unknown field "alow"`,
		"egress:\n  allow:\n  - hots: a.example":                                       `3: egress.allow[0]: unknown field "hots"`,
		"egress:\n  allow: a.example":                                                  `2: egress.allow: string was used where sequence is expected: write a list`,
		"egress:\n  allow: [a.example]":                                                `2: `,
		"egress:\n  allow:\n  - host: a.example\n  - {}":                               `4: egress.allow[1]: names nothing: write host: or cidr:`,
		"egress:\n  allow:\n  - ports: [443]":                                          `3: egress.allow[0]: names nothing`,
		"egress:\n  allow:\n  - host: \"\"":                                            `3: egress.allow[0].host: "\"\"": write a text that is not empty`,
		"egress:\n  allow:\n  - host: \"\"\n    cidr: 10.0.0.0/8":                      `3: egress.allow[0].host: "\"\"": write a text`,
		"egress:\n  allow:\n  - host: a.example\n    cidr: 10.0.0.0/8\n    ports: [1]": `3: egress.allow[0]: has both host "a.example" and cidr 10.0.0.0/8: write an entry for each`,

		"egress:\n  allow:\n  - ports: [443]\n    host: 10.0.0.1":                                                 `4: egress.allow[0].host: "10.0.0.1" is an address, not a name: write it as cidr: 10.0.0.1/32`,
		"egress:\n  allow:\n  - host: \"[2001:db8::1]:443\"":                                                      `3: egress.allow[0].host: "[2001:db8::1]:443" is an address, not a name: write it as cidr: 2001:db8::1/128`,
		"egress:\n  allow:\n  - host: \"::ffff:10.0.0.1\"":                                                        `3: egress.allow[0].host: "::ffff:10.0.0.1" is an address, not a name: write it as cidr: 10.0.0.1/32`,
		"egress:\n  allow:\n  - host: fe80::1%eth0":                                                               `3: egress.allow[0].host: "fe80::1%eth0" is an address`,
		"egress:\n  allow:\n  - host: 10.0.0.0/8":                                                                 `3: egress.allow[0].host: "10.0.0.0/8" is a URL or a range: write the host's name alone`,
		"egress:\n  allow:\n  - host: 0x7f000001":                                                                 `3: egress.allow[0].host: "0x7f000001" is an address`,
		"egress:\n  allow:\n  - host: 1.5":                                                                        `3: egress.allow[0].host: "1.5" is an address`,
		"egress:\n  allow:\n  - host: https://a.example":                                                          `3: egress.allow[0].host: "https://a.example" is a URL`,
		"egress:\n  allow:\n  - host: a.example:443":                                                              `3: egress.allow[0].host: "a.example:443" has a port: write the name alone, and the port in ports`,
		"egress:\n  allow:\n  - host: a..example":                                                                 `3: egress.allow[0].host: "a..example" has an empty label: write a name`,
		"egress:\n  allow:\n  - host: \"*\"":                                                                      `3: egress.allow[0].host: "*" has * elsewhere`,
		"egress:\n  allow:\n  - host: \"*.\"":                                                                     `3: egress.allow[0].host: the host name is empty`,
		"egress:\n  allow:\n  - host: \"*.*\"":                                                                    `3: egress.allow[0].host: "*.*" has * elsewhere`,
		"egress:\n  allow:\n  - host: \"a*.example.com\"":                                                         `3: egress.allow[0].host: "a*.example.com" has * elsewhere`,
		"egress:\n  allow:\n  - host: \"*a.example.com\"":                                                         `3: egress.allow[0].host: "*a.example.com" has * elsewhere`,
		"egress:\n  allow:\n  - host: \"x.*.example.com\"":                                                        `3: egress.allow[0].host: "x.*.example.com" has * elsewhere`,
		"egress:\n  allow:\n  - host: \"*.com\"":                                                                  `3: egress.allow[0].host: "*.com" is everything under a top-level domain: name the domain, such as *.example.com`,
		"egress:\n  allow:\n  - host: \"*.com.\"":                                                                 `3: egress.allow[0].host: "*.com." is everything`,
		"egress:\n  allow:\n  - host: \"*.co.uk\"":                                                                `3: egress.allow[0].host: "*.co.uk" is everything under a public suffix`,
		"egress:\n  allow:\n  - host: \"*.10.0.0.1\"":                                                             `3: egress.allow[0].host: "10.0.0.1" is an address`,
		"egress:\n  allow:\n  - host: localhost":                                                                  `3: egress.allow[0].host: "localhost" is the run itself`,
		"egress:\n  allow:\n  - host: \"*.app.LOCALHOST\"":                                                        `3: egress.allow[0].host: "*.app.LOCALHOST" is the run itself`,
		"egress:\n  allow:\n  - {host: a.example, ports: []}":                                                     `3: egress.allow[0].ports: has 0 ports: name 1 to 16`,
		"egress:\n  allow:\n  - host: a.example\n    ports:\n    - 443\n    - 53":                                 `6: egress.allow[0].ports[1]: 53 is DNS`,
		"egress:\n  allow:\n  - {host: a.example, ports: [853]}":                                                  `3: egress.allow[0].ports[0]: 853 is DNS`,
		"egress:\n  allow:\n  - {cidr: 203.0.113.0/24, ports: [53]}":                                              `3: egress.allow[0].ports[0]: 53 is DNS`,
		"egress:\n  allow:\n  - {host: a.example, ports: [443, 443]}":                                             `3: egress.allow[0].ports[1]: 443 is listed twice`,
		"egress:\n  allow:\n  - {host: a.example, ports: [0]}":                                                    `3: egress.allow[0].ports[0]: "0": write a port from 1 to 65535`,
		"egress:\n  allow:\n  - {host: a.example, ports: [65536]}":                                                `3: egress.allow[0].ports[0]: "65536": write a port`,
		"egress:\n  allow:\n  - {host: a.example, ports: [-1]}":                                                   `3: egress.allow[0].ports[0]: "-1": write a port`,
		"egress:\n  allow:\n  - {host: a.example, ports: [http]}":                                                 `3: egress.allow[0].ports[0]: "http": write a port`,
		"egress:\n  allow:\n  - {host: a.example, ports: [0443]}":                                                 `3: egress.allow[0].ports[0]: "0443": write a port`,
		"egress:\n  allow:\n  - {host: a.example, ports: 443}":                                                    `3: egress.allow[0].ports: int was used where sequence is expected: write a list`,
		"egress:\n  allow:\n  - {host: a.example, ports: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}":            `3: egress.allow[0].ports: has 17 ports: name 1 to 16`,
		"egress:\n  allow:\n  - host: a.example\n    protocol: udp":                                               `4: egress.allow[0].protocol: "udp" for a host: names are reached over tcp alone`,
		"egress:\n  allow:\n  - host: a.example\n    protocol: TCP":                                               `4: egress.allow[0].protocol: "TCP": write tcp`,
		"egress:\n  allow:\n  - host: a.example\n    paths: [/v1]":                                                `4: egress.allow[0].paths: "[/v1]": methods and paths are for credentials`,
		"egress:\n  allow:\n  - host: a.example\n    methods: [GET]":                                              `4: egress.allow[0].methods: "[GET]": methods and paths are for credentials`,
		"egress:\n  allow:\n  - host: a.example\n  - host: b.example\n  - host: A.example.\n    ports: [80, 443]": `5: egress.allow[2]: a.example:443 is granted by allow[0] already: remove one`,
		"egress:\n  allow:\n  - {host: a.example, websocket: maybe}":                                              `3: `,

		"egress:\n  allow:\n  - {cidr: 203.0.113.0/24}":                                                      `3: egress.allow[0]: cidr 203.0.113.0/24 has no ports: name them`,
		"egress:\n  allow:\n  - cidr: 203.0.113.7":                                                           `3: egress.allow[0].cidr: "203.0.113.7": write a range of addresses, 203.0.113.7/32 for the one`,
		"egress:\n  allow:\n  - cidr: a.example":                                                             `3: egress.allow[0].cidr: "a.example": write a range of addresses such as`,
		"egress:\n  allow:\n  - cidr: 10.0.0.0/33":                                                           `3: egress.allow[0].cidr: "10.0.0.0/33": write a range`,
		"egress:\n  allow:\n  - cidr: fe80::%eth0/64":                                                        `3: egress.allow[0].cidr: "fe80::%eth0/64": write a range`,
		"egress:\n  allow:\n  - cidr: [10.0.0.0/8]":                                                          `3: egress.allow[0].cidr: "[10.0.0.0/8]": write a range`,
		"egress:\n  allow:\n  - {cidr: 203.0.113.7/24, ports: [1]}":                                          `3: egress.allow[0].cidr: "203.0.113.7/24" has bits set past its length: write 203.0.113.0/24, or 203.0.113.7/32`,
		"egress:\n  allow:\n  - {cidr: 239.0.0.0/8, ports: [1], protocol: udp}":                              `3: egress.allow[0].cidr: "239.0.0.0/8" holds no address of one host`,
		"egress:\n  allow:\n  - {cidr: 0.0.0.0/32, ports: [1]}":                                              `3: egress.allow[0].cidr: "0.0.0.0/32" holds no address`,
		"egress:\n  allow:\n  - {cidr: 203.0.113.0/24, ports: [1], protocol: sctp}":                          `3: egress.allow[0].protocol: "sctp": write tcp`,
		"egress:\n  allow:\n  - {cidr: 203.0.113.0/24, ports: [1], websocket: true}":                         `3: egress.allow[0].websocket: is for a host`,
		"egress:\n  allow:\n  - {cidr: 10.0.0.0/8, ports: [1]}\n  - {cidr: ::ffff:10.0.0.0/104, ports: [1]}": `4: egress.allow[1]: 10.0.0.0/8:1/tcp is granted by allow[0] already`,

		"egress:\n  limits: {queries: 0}":            `2: egress.limits.queries: "0": write a positive whole number`,
		"egress:\n  limits: {names: 10001}":          `2: egress.limits.names: 10001 is not from 1 to 10000`,
		"egress:\n  limits:\n    bytes_up: 5 apples": `3: egress.limits.bytes_up: "5 apples": write a positive size`,
		"egress:\n  limits:\n    idle: 5":            `3: egress.limits.idle: "5": write a positive duration`,
		"egress:\n  limits:\n    idle: 25h":          `3: egress.limits.idle: 25h0m0s is not from 1 to 24h0m0s`,
		"egress:\n  limits:\n    bytes: 5":           `3: egress.limits: unknown field "bytes"`,
	})
}

func TestCredentialRefusals(t *testing.T) {
	// Each is the default credential with one line in place of that of the same key.
	base := []string{
		"egress:",
		"  allow: [{host: a.example}, {host: \"*.w.example\"}, {host: p.example, ports: [80]}]",
		"  credentials:",
		"  - name: api",
		"    host: a.example",
		"    header: Authorization",
		"    source: {env: TOKEN}",
	}
	with := func(lines ...string) string {
		out := append([]string{}, base...)
		for _, l := range lines {
			key := strings.SplitN(l, ":", 2)[0]
			replaced := false
			for i := range out {
				if rest := strings.TrimLeft(out[i], " -"); i > 2 && strings.HasPrefix(rest, key+":") {
					out[i] = out[i][:len(out[i])-len(rest)] + l
					replaced = true
				}
			}
			if !replaced {
				out = append(out, "    "+l)
			}
		}
		return strings.Join(out, "\n")
	}
	mustRead(t, with())
	mustRead(t, with("host: b.c.w.example"))
	without := func(key string) string { return strings.Replace(with(), "    "+key+":", "    # "+key+":", 1) }
	second := "\n  - {name: other, host: A.example., query: key, source: {env: B}}"
	refusals(t, map[string]string{
		with("name: Api"):                    `4: egress.credentials[0].name: "Api": write 1 to 64 of a-z`,
		with("name: ../x"):                   `4: egress.credentials[0].name: "../x"`,
		with("host: other.example"):          `5: egress.credentials[0].host: "other.example": other.example is not granted, and a credential is for a host granted on 443: add it to allow`,
		with("host: p.example"):              `5: egress.credentials[0].host: "p.example": p.example is granted on 80 only`,
		with("host: \"*.w.example\""):        `5: egress.credentials[0].host: "*.w.example": a secret goes to one host`,
		with("host: w.example"):              `5: egress.credentials[0].host: "w.example": w.example is not granted`,
		with("host: 10.0.0.1"):               `5: egress.credentials[0].host: "10.0.0.1" is an address`,
		without("host"):                      `4: egress.credentials[0].host: the host name is empty`,
		without("header"):                    `4: egress.credentials[0]: has 0 of header, query, basic and placeholder: write exactly one`,
		without("source"):                    `4: egress.credentials[0].source: has 0 of file, env and command`,
		with("query: key"):                   `4: egress.credentials[0]: has 2 of header`,
		with("header: X Y"):                  `6: egress.credentials[0].header: "X Y" is no name of a header field`,
		with(`header: "X\r\nHost"`):          `6: egress.credentials[0].header: "X\r\nHost" is no name`,
		with("header: \"X:\""):               `6: egress.credentials[0].header: "X:" is no name`,
		with("header: hOST"):                 `6: egress.credentials[0].header: "Host" is about the connection`,
		with("header: content-length"):       `6: egress.credentials[0].header: "Content-Length" is about`,
		with("header: connection"):           `6: egress.credentials[0].header: "Connection" is about`,
		with("header: transfer-encoding"):    `6: egress.credentials[0].header: "Transfer-Encoding" is about`,
		with("header: TE"):                   `6: egress.credentials[0].header: "Te" is about`,
		with("header: Proxy-authorization"):  `6: egress.credentials[0].header: "Proxy-Authorization" is about`,
		with("header: HTTP2-Settings"):       `6: egress.credentials[0].header: "Http2-Settings" is about`,
		with("format: Bearer"):               `8: egress.credentials[0].format: "Bearer" has {secret} 0 times: write it once, such as "Bearer {secret}"`,
		with("format: \"{secret}{secret}\""): `8: egress.credentials[0].format: "{secret}{secret}" has {secret} 2 times`,
		with(`format: "a\r\nb: {secret}"`):   `8: egress.credentials[0].format: "a\r\nb: {secret}": write one line`,
		with(`format: "{secret} "`):          `8: egress.credentials[0].format: "{secret} ": write one line`,
		without("header") + "\n    query: k\n    format: \"{secret}\"": `9: egress.credentials[0].format: is for header alone`,
		without("header") + "\n    query: a&b":                         `8: egress.credentials[0].query: "a&b"`,
		without("header") + "\n    basic: \"a:b\"":                     `8: egress.credentials[0].basic: "a:b"`,
		without("header") + "\n    basic: \"a\\nb\"":                   `8: egress.credentials[0].basic: "a\nb"`,
		without("header") + "\n    placeholder: short":                 `8: egress.credentials[0].placeholder: "short": write 8 to 256`,
		without("header") + "\n    placeholder: a/b/c/d/e":             `8: egress.credentials[0].placeholder: "a/b/c/d/e"`,
		with("source: {env: A, file: /a}"):                             `7: egress.credentials[0].source: has 2 of file`,
		with("source: {}"):                                             `7: egress.credentials[0].source: has 0 of file`,
		with("source: {file: a}"):                                      `7: egress.credentials[0].source.file: "a": write an absolute path`,
		with("source: {file: /a/../b}"):                                `7: egress.credentials[0].source.file: "/a/../b"`,
		with("source: {env: \"A=B\"}"):                                 `7: egress.credentials[0].source.env: "A=B" is no name of a variable`,
		with("source: {command: []}"):                                  `7: egress.credentials[0].source.command: write 1 to 64 words`,
		with("source: {command: [pass, show]}"):                        `7: egress.credentials[0].source.command: write 1 to 64 words`,
		with("source: {command: pass}"):                                `7: egress.credentials[0].source.command: string was used where sequence is expected: write a list`,
		with("source: {vault: x}"):                                     `7: egress.credentials[0].source: unknown field "vault"`,
		with("source: TOKEN"):                                          `7: `,
		with("secret: abc"):                                            `8: egress.credentials[0]: unknown field "secret"`,
		with("methods: [get]"):                                         `8: egress.credentials[0].methods[0]: "get": write a method in upper-case letters`,
		with("methods: [GET, GET]"):                                    `8: egress.credentials[0].methods[1]: "GET" is listed twice`,
		with("methods: [CONNECT]"):                                     `8: egress.credentials[0].methods[0]: "CONNECT" asks for a tunnel`,
		with("methods: []"):                                            `8: egress.credentials[0].methods: has 0 entries: write 1 to 16, or leave the key out for any`,
		with("paths: []"):                                              `8: egress.credentials[0].paths: has 0 entries`,
		with("paths: [v1]"):                                            `8: egress.credentials[0].paths[0]: "v1" does not begin with /`,
		with("paths: [/v1, \"/a*b\"]"):                                 `8: egress.credentials[0].paths[1]: "/a*b" has * elsewhere`,
		with("paths: [\"/a?b=c\"]"):                                    `8: egress.credentials[0].paths[0]: "/a?b=c" has a query`,
		with("paths: [/a/../b]"):                                       `8: egress.credentials[0].paths[0]: "/a/../b" has empty or dot segments`,
		with("paths: [/a//b]"):                                         `8: egress.credentials[0].paths[0]: "/a//b" has empty or dot segments`,
		with("paths: [/a%2fb]"):                                        `8: egress.credentials[0].paths[0]: "/a%2fb" has a query, a fragment, an escape`,
		with("paths: [/ü]"):                                            `8: egress.credentials[0].paths[0]: "/ü" is over 1024 bytes, or has spaces`,
		with() + second:                                                `8: egress.credentials[1].host: "a.example" has credentials[0] already`,
		with() + strings.Replace(strings.Replace(second, "other", "api", 1), "A.example.", "x.w.example", 1): `8: egress.credentials[1].name: "api" is the name of credentials[0], too`,
	})
}

// A policy that is taken is in its one form, and stays the same over JSON.
func FuzzRead(f *testing.F) {
	f.Add(full)
	f.Add(grants)
	f.Add("egress: {allow: [{host: \"*.a.test\"}], limits: {idle: 1ns}}")
	f.Fuzz(func(t *testing.T, content string) {
		p, err := read(content)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("%q", err)
			}
			return
		}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Policy
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if err := back.Check(); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(p, &back, compare, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
