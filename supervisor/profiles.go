package supervisor

import (
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
	name := req.Profile
	if name == "" {
		name = s.profiles.Default
	}
	if name == "" {
		name = profile.OfflineName
	}
	p, err := profile.Find(s.profiles.Dir, name)
	if err != nil {
		return nil, nil, refuse("use another profile, or have the operator mend this one", "profile: %v", err)
	}
	policy, err := p.Egress.Narrow(egress.Narrowing{Deny: req.DenyNetwork, Allow: req.Allow})
	if err != nil {
		return nil, nil, refuse("see what the profile grants with `proctor profile show "+p.Name+"`", "%v", err)
	}
	return p, policy, nil
}
