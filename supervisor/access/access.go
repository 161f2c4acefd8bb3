// Package access says what who calls the supervisor may do: rules that operators write in
// proctor.yaml, for the users and groups that the kernel says a caller has.
package access

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"proctor/strictyaml"
	"proctor/supervisor/turns"
)

// A Role is what of others' runs a caller may see and end. Each may what the one before may.
type Role string

const (
	Caller   Role = "caller"   // its own runs
	Auditor  Role = "auditor"  // sees everybody's, live and recorded
	Operator Role = "operator" // ends everybody's, and changes what the supervisor is set to
)

// UnmarshalYAML implements yaml.NodeUnmarshaler, as do those below.
func (r *Role) UnmarshalYAML(n ast.Node) error {
	switch v := Role(strictyaml.Scalar(n)); v {
	case Caller, Auditor, Operator:
		*r = v
		return nil
	}
	return strictyaml.Refuse(n, "write caller, auditor or operator")
}

// Sees reports whether a role sees the runs of others.
func (r Role) Sees() bool { return r == Auditor || r == Operator }

// Operates reports whether a role changes the state of what is not its own.
func (r Role) Operates() bool { return r == Operator }

// A UserID is a user, written as a name or a number.
type UserID uint32

func (u *UserID) UnmarshalYAML(n ast.Node) error {
	id, err := lookUp(strictyaml.Scalar(n), func(name string) (string, error) {
		found, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return found.Uid, nil
	})
	if err != nil {
		return strictyaml.Refuse(n, "no such user: write the name or the number of one that there is")
	}
	*u = UserID(id)
	return nil
}

// A GroupID is a group, written as a name or a number.
type GroupID uint32

func (g *GroupID) UnmarshalYAML(n ast.Node) error {
	id, err := lookUp(strictyaml.Scalar(n), func(name string) (string, error) {
		found, err := user.LookupGroup(name)
		if err != nil {
			return "", err
		}
		return found.Gid, nil
	})
	if err != nil {
		return strictyaml.Refuse(n, "no such group: write the name or the number of one that there is")
	}
	*g = GroupID(id)
	return nil
}

// lookUp takes numbers as they are: who is told by number need not have a name on this host.
func lookUp(name string, find func(string) (string, error)) (uint32, error) {
	if name == "" {
		return 0, fmt.Errorf("is empty")
	}
	if strings.Trim(name, "0123456789") != "" {
		var err error
		if name, err = find(name); err != nil {
			return 0, err
		}
	}
	id, err := strconv.ParseUint(name, 10, 32)
	// The last one means nobody to the kernel.
	if err != nil || id == 1<<32-1 {
		return 0, fmt.Errorf("is no number of one")
	}
	return uint32(id), nil
}

// Who names users and groups: whoever is one of them, or in one of them.
type Who struct {
	Users  []UserID  `yaml:"users" json:"users,omitempty"`
	Groups []GroupID `yaml:"groups" json:"groups,omitempty"`
}

// Has reports whether a caller is meant.
func (w Who) Has(uid uint32, gids []uint32) bool {
	return slices.Contains(w.Users, UserID(uid)) || slices.ContainsFunc(gids, func(g uint32) bool { return slices.Contains(w.Groups, GroupID(g)) })
}

// Empty reports whether nobody is named.
func (w Who) Empty() bool { return len(w.Users) == 0 && len(w.Groups) == 0 }

// A Rule is one of proctor.yaml's, for those whom it names.
type Rule struct {
	Who            `yaml:",inline"`
	Role           Role             `yaml:"role"`            // default caller
	Profiles       []string         `yaml:"profiles"`        // that they may use; left out: every one
	DefaultProfile string           `yaml:"default_profile"` // of a run that names none; default: that of all
	AtOnce         strictyaml.Count `yaml:"at_once"`         // runs; default: as many as there may be
	Queue          strictyaml.Count `yaml:"queue"`           // runs that wait beyond these; default 256
	Rate           strictyaml.Count `yaml:"rate"`            // runs a minute; default: no bound
}

// defaultQueue is how many runs of one caller may wait.
const defaultQueue = 256

// Rules are in order: the first that names a caller holds for him.
type Rules []Rule

// Check reports what no rule may say.
func (r Rules) Check() error {
	for i, rule := range r {
		if rule.Empty() {
			return strictyaml.BadField(fmt.Sprintf("callers[%d]", i), "names nobody: give it users or groups")
		}
		if d := rule.DefaultProfile; d != "" && rule.Profiles != nil && !slices.Contains(rule.Profiles, d) {
			return strictyaml.BadField(fmt.Sprintf("callers[%d].default_profile", i), "%q is not among the rule's profiles: add it there, or choose one of them", d)
		}
		if slices.Contains(rule.Users, 0) {
			return strictyaml.BadField(fmt.Sprintf("callers[%d].users", i), "has root, who may do everything: leave it out")
		}
	}
	return nil
}

// Access is what one caller may do.
type Access struct {
	Role           Role
	Profiles       []string // nil: every one
	DefaultProfile string   // "": that of all
	Share          turns.Share
}

// Uses reports whether a caller may use a profile, as far as proctor.yaml says.
func (a Access) Uses(profile string) bool {
	return a.Profiles == nil || slices.Contains(a.Profiles, profile)
}

// For is what a caller may do. Root is an operator without bounds; whom no rule names may run
// under every profile that lets him.
func (r Rules) For(uid uint32, gids []uint32) Access {
	a := Access{Role: Caller, Share: turns.Share{Queue: defaultQueue}}
	if uid == 0 {
		a.Role = Operator
		return a
	}
	for _, rule := range r {
		if !rule.Has(uid, gids) {
			continue
		}
		if rule.Role != "" {
			a.Role = rule.Role
		}
		a.Profiles, a.DefaultProfile = rule.Profiles, rule.DefaultProfile
		a.Share.AtOnce, a.Share.Rate = int(rule.AtOnce), float64(rule.Rate)
		if rule.Queue != 0 {
			a.Share.Queue = int(rule.Queue)
		}
		break
	}
	return a
}
