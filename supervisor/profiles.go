package supervisor

import (
	"cmp"
	"strings"

	"proctor/netpolicy/egress"
	"proctor/supervisor/profile"
)

// Profiles is where it stands what runs may reach. A profile is read anew for every run, so
// that a change holds from the next one on.
type Profiles struct {
	Dir     string
	Default string // of runs that name none; default: offline
}

// profileFor is the profile of a request, and what the request leaves of it.
func (s *Supervisor) profileFor(req *Request) (*profile.Profile, *egress.Policy, error) {
	name := cmp.Or(req.Profile, req.Access.DefaultProfile, s.profiles.Default, profile.OfflineName)
	if !req.Access.Uses(name) {
		return nil, nil, refuse("choose one with --profile: this caller may use "+list(req.Access.Profiles),
			"profile %q is not for this caller", clip(name))
	}
	p, err := profile.Find(s.profiles.Dir, name)
	if err != nil {
		return nil, nil, refuse("use another profile, or have the operator mend this one", "profile: %v", err)
	}
	if uid := req.Caller.UID; uid != 0 && !p.Callers.Empty() && !p.Callers.Has(uid, req.Groups) {
		return nil, nil, refuse("use another profile, or have the operator add this caller to it", "profile %q is for certain users and groups, and not for user %d", p.Name, uid)
	}
	policy, err := p.Egress.Narrow(egress.Narrowing{Deny: req.DenyNetwork, Allow: req.Allow})
	if err != nil {
		return nil, nil, refuse("see what the profile grants with `proctor profile show "+p.Name+"`", "%v", err)
	}
	return p, policy, nil
}

// list is names as a sentence has them.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func clip(s string) string {
	const most = 80
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
