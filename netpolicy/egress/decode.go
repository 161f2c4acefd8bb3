package egress

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/goccy/go-yaml/ast"

	"proctor/strictyaml"
)

// What operators write is read here, for strictyaml.Decode: each value that can't be understood
// by itself is refused with its line. What they mean together is for [Policy.Check].

// UnmarshalYAML implements yaml.InterfaceUnmarshaler, as do those below.
func (g *Grant) UnmarshalYAML(unmarshal func(any) error) error {
	var in struct {
		Host      strictyaml.Text `yaml:"host"`
		CIDR      prefix          `yaml:"cidr"`
		Ports     []port          `yaml:"ports"`
		Protocol  strictyaml.Text `yaml:"protocol"`
		WebSocket bool            `yaml:"websocket"`
		Methods   misplaced       `yaml:"methods"`
		Paths     misplaced       `yaml:"paths"`
	}
	if err := unmarshal(&in); err != nil {
		return err
	}
	*g = Grant{Host: string(in.Host), CIDR: netip.Prefix(in.CIDR), Protocol: string(in.Protocol), WebSocket: in.WebSocket}
	if in.Ports != nil {
		g.Ports = make([]uint16, len(in.Ports))
	}
	for i, p := range in.Ports {
		g.Ports[i] = uint16(p)
	}
	return nil
}

func (c *Credential) UnmarshalYAML(unmarshal func(any) error) error {
	var in struct {
		Name        strictyaml.Text   `yaml:"name"`
		Host        strictyaml.Text   `yaml:"host"`
		Header      strictyaml.Text   `yaml:"header"`
		Query       strictyaml.Text   `yaml:"query"`
		Basic       strictyaml.Text   `yaml:"basic"`
		Placeholder strictyaml.Text   `yaml:"placeholder"`
		Format      strictyaml.Text   `yaml:"format"`
		Source      Source            `yaml:"source"`
		Methods     []strictyaml.Text `yaml:"methods"`
		Paths       []strictyaml.Text `yaml:"paths"`
	}
	if err := unmarshal(&in); err != nil {
		return err
	}
	*c = Credential{
		Name: string(in.Name), Host: string(in.Host), Header: string(in.Header), Query: string(in.Query),
		Basic: string(in.Basic), Placeholder: string(in.Placeholder), Format: string(in.Format), Source: in.Source,
		Methods: texts(in.Methods), Paths: texts(in.Paths),
	}
	return nil
}

func (s *Source) UnmarshalYAML(unmarshal func(any) error) error {
	var in struct {
		File    strictyaml.Text   `yaml:"file"`
		Env     strictyaml.Text   `yaml:"env"`
		Command []strictyaml.Text `yaml:"command"`
	}
	if err := unmarshal(&in); err != nil {
		return err
	}
	*s = Source{File: string(in.File), Env: string(in.Env), Command: texts(in.Command)}
	return nil
}

func (l *Limits) UnmarshalYAML(unmarshal func(any) error) error {
	var in struct {
		Queries     strictyaml.Count    `yaml:"queries"`
		Names       strictyaml.Count    `yaml:"names"`
		Connections strictyaml.Count    `yaml:"connections"`
		BytesUp     strictyaml.Size     `yaml:"bytes_up"`
		BytesDown   strictyaml.Size     `yaml:"bytes_down"`
		Idle        strictyaml.Duration `yaml:"idle"`
	}
	if err := unmarshal(&in); err != nil {
		return err
	}
	*l = Limits{
		Queries: int(in.Queries), Names: int(in.Names), Connections: int(in.Connections),
		BytesUp: int64(in.BytesUp), BytesDown: int64(in.BytesDown), Idle: time.Duration(in.Idle),
	}
	return nil
}

// texts keeps an empty list apart from none.
func texts(in []strictyaml.Text) []string {
	if in == nil {
		return nil
	}
	out := make([]string, len(in))
	for i, t := range in {
		out[i] = string(t)
	}
	return out
}

type prefix netip.Prefix

func (p *prefix) UnmarshalYAML(n ast.Node) error {
	s := strictyaml.Scalar(n)
	v, err := netip.ParsePrefix(s)
	if err == nil {
		*p = prefix(v)
		return nil
	}
	if a, ok := literal(s); ok {
		return strictyaml.Refuse(n, fmt.Sprintf("write a range of addresses, %s for the one", single(a)))
	}
	return strictyaml.Refuse(n, "write a range of addresses such as 203.0.113.0/24 or 2001:db8::/32; names are for host")
}

type port uint16

func (p *port) UnmarshalYAML(n ast.Node) error {
	v, err := parsePort(strictyaml.Scalar(n))
	if err != nil {
		return strictyaml.Refuse(n, "write a port from 1 to 65535, such as 443")
	}
	*p = port(v)
	return nil
}

// misplaced is a rule that could not be enforced where it stands.
type misplaced struct{}

func (*misplaced) UnmarshalYAML(n ast.Node) error {
	return strictyaml.Refuse(n, "methods and paths are for credentials, since what is granted alone passes through encrypted: give the host a credential, or remove the key")
}

// limitsJSON is Limits with the duration as people write it.
type limitsJSON struct {
	Queries     int    `json:"queries"`
	Names       int    `json:"names"`
	Connections int    `json:"connections"`
	BytesUp     int64  `json:"bytes_up"`
	BytesDown   int64  `json:"bytes_down"`
	Idle        string `json:"idle"` // as time.Duration's String
}

// MarshalJSON implements json.Marshaler.
func (l Limits) MarshalJSON() ([]byte, error) {
	return json.Marshal(limitsJSON{l.Queries, l.Names, l.Connections, l.BytesUp, l.BytesDown, l.Idle.String()})
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Limits) UnmarshalJSON(data []byte) error {
	var in limitsJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*l = Limits{in.Queries, in.Names, in.Connections, in.BytesUp, in.BytesDown, 0}
	if in.Idle == "" {
		return nil
	}
	idle, err := time.ParseDuration(in.Idle)
	if err != nil {
		return fmt.Errorf("idle %q is no duration: write one such as 5m", clip(in.Idle))
	}
	l.Idle = idle
	return nil
}
