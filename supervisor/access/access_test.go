package access

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"

	"proctor/strictyaml"
	"proctor/supervisor/turns"
)

type file struct {
	Callers Rules `yaml:"callers"`
}

func read(text string) (Rules, error) {
	var f file
	if err := strictyaml.Decode("f.yaml", []byte(text), &f); err != nil {
		return nil, err
	}
	return f.Callers, f.Callers.Check()
}

func TestFor(t *testing.T) {
	rules, err := read(`
callers:
  - users: [1001]
    role: auditor
    profiles: [offline]
    at_once: 2
    queue: 3
    rate: 60
  - groups: [500, 501]
    profiles: [offline, data]
    default_profile: data
  - users: [1002]
    groups: [600]
    role: operator
    profiles: []
`)
	if err != nil {
		t.Fatal(err)
	}
	many := turns.Share{Queue: defaultQueue}
	for _, c := range []struct {
		uid    uint32
		groups []uint32
		want   Access
	}{
		{1001, []uint32{500}, Access{Auditor, []string{"offline"}, "", turns.Share{AtOnce: 2, Queue: 3, Rate: 60}}}, // the first rule
		{1003, []uint32{7, 501}, Access{Caller, []string{"offline", "data"}, "data", many}},
		{1002, nil, Access{Operator, []string{}, "", many}},
		{1004, []uint32{600}, Access{Operator, []string{}, "", many}},
		{1004, []uint32{7}, Access{Caller, nil, "", many}},
		{0, []uint32{500}, Access{Operator, nil, "", many}},
	} {
		got := rules.For(c.uid, c.groups)
		if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", c.want) {
			t.Errorf("%d %v: %#v\nwant %#v", c.uid, c.groups, got, c.want)
		}
	}
	none := Access{Profiles: []string{}}
	if none.Uses("offline") || !(Access{}).Uses("any") || !(Access{Profiles: []string{"a"}}).Uses("a") {
		t.Error("profiles are not told apart")
	}
	for role, want := range map[Role][2]bool{"": {}, Caller: {}, Auditor: {true, false}, Operator: {true, true}} {
		if got := [2]bool{role.Sees(), role.Operates()}; got != want {
			t.Errorf("%q: %v", role, got)
		}
	}
}

func TestNames(t *testing.T) {
	me, err := user.LookupId(fmt.Sprint(os.Getuid()))
	if err != nil {
		t.Fatal(err)
	}
	root, err := user.LookupGroupId("0")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := read(fmt.Sprintf("callers: [{users: [%s, 4294967294], groups: [%s]}]", me.Username, root.Name))
	if os.Getuid() == 0 {
		if err == nil || !strings.Contains(err.Error(), "has root") {
			t.Errorf("root is named: %v", err)
		}
	} else if err != nil || !slices.Equal(rules[0].Users, []UserID{UserID(os.Getuid()), 4294967294}) || !slices.Equal(rules[0].Groups, []GroupID{0}) {
		t.Errorf("%+v, %v", rules, err)
	}
}

func TestRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"callers: [{role: caller}]":                                        "callers[0]: names nobody",
		"callers: [{users: [nobody-of-that-name]}]":                        "no such user",
		"callers: [{users: ['']}]":                                         "no such user",
		"callers: [{users: [-1]}]":                                         "no such user",
		"callers: [{users: [4294967295]}]":                                 "no such user",
		"callers: [{groups: [no-group-of-that-name]}]":                     "no such group",
		"callers: [{groups: [99999999999]}]":                               "no such group",
		"callers: [{users: [5], role: admin}]":                             "write caller, auditor or operator",
		"callers: [{users: [0]}]":                                          "has root",
		"callers: [{users: [5], profiles: [a], default_profile: offline}]": `"offline" is not among the rule's profiles`,
		"callers: [{users: [5], at_once: 0}]":                              "write a positive whole number",
		"callers: [{users: [5], uid: 7}]":                                  `unknown field "uid"`,
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
