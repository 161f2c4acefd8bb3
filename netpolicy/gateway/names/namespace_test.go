package names_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/netpolicy/egress"
	"proctor/netpolicy/gateway/names"
	"proctor/netpolicy/thread"
	"proctor/testenv"
)

type nothing struct{}

func (nothing) Granted(name string) egress.Decision { return nothing{}.Host(name, 0) }
func (nothing) Host(name string, _ uint16) egress.Decision {
	return egress.Decision{Rule: name + " is not granted"}
}
func (nothing) Address(netip.Addr, uint16, string) egress.Decision { return egress.Decision{} }

type records struct {
	mu  sync.Mutex
	all []audit.Query
}

func (r *records) Query(q audit.Query) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, q)
}

// TestWholeAddressSpace serves a namespace in which every address is local, as a run's is, and
// has C programs of this host ask there: an answer leaves from the address that was asked, or
// they would not take it.
func TestWholeAddressSpace(t *testing.T) {
	testenv.Root(t)
	for _, networks := range [][]string{{"udp4", "udp6"}, {"udp"}} {
		t.Run(strings.Join(networks, " "), func(t *testing.T) { wholeAddressSpace(t, networks) })
	}
}

func wholeAddressSpace(t *testing.T, networks []string) {
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	rec := &records{}
	up, err := names.NewUpstream(names.UpstreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	r, err := names.NewResolver(names.Options{Policy: nothing{}, Table: names.NewTable(0), Upstream: up, Recorder: rec})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	err = thread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := everything(); err != nil {
			return err
		}
		for _, network := range networks {
			conn, err := net.ListenUDP(network, &net.UDPAddr{Port: 53})
			if err != nil {
				return err
			}
			wg.Go(func() {
				if err := r.ServePacket(ctx, conn); err != nil {
					t.Error(err)
				}
			})
		}
		l, err := net.Listen("tcp", ":53")
		if err != nil {
			return err
		}
		wg.Go(func() {
			if err := r.ServeStream(ctx, l); err != nil {
				t.Error(err)
			}
		})
		n := 0
		for _, server := range []string{"192.0.2.53", "203.0.113.7", "2001:db8::53"} {
			for _, options := range []string{"", "use-vc"} {
				n++
				conf := fmt.Sprintf("nameserver %s\noptions %s\n", server, options)
				if err := os.WriteFile(resolv, []byte(conf), 0o644); err != nil {
					return err
				}
				name := fmt.Sprintf("n%d.evil.example", n)
				cmd := exec.CommandContext(ctx, "unshare", "-m", "sh", "-c",
					`mount --bind "$1" /etc/resolv.conf && exec getent ahosts "$2"`, "sh", resolv, name)
				began := time.Now()
				out, err := cmd.CombinedOutput()
				took := time.Since(began)
				if code := cmd.ProcessState.ExitCode(); code != 2 || len(out) > 0 { // 2: not found
					t.Errorf("%s %q: %v, exit code %d:\n%s", server, options, err, code, out)
				}
				if took > 4*time.Second { // it would ask again after 5 s
					t.Errorf("%s %q: took %v", server, options, took)
				}
				check(t, rec, name, server, options)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// check looks for the two questions of one getaddrinfo.
func check(t *testing.T, rec *records, name, server, options string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	var types []string
	for _, q := range rec.all {
		if string(q.Name) != name {
			continue
		}
		types = append(types, q.Type)
		protocol := map[string]string{"": "udp", "use-vc": "tcp"}[options]
		if want := netip.AddrPortFrom(netip.MustParseAddr(server), 53); q.Server != want || q.Protocol != protocol || q.Decision != audit.Blocked {
			t.Errorf("%s %q: record %+v", server, options, q)
		}
	}
	if got := strings.Join(types, " "); got != "A AAAA" && got != "AAAA A" {
		t.Errorf("%s %q: asked for %q", server, options, got)
	}
}

// everything makes every address of both families one of this namespace's own.
func everything() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, family := range []struct{ own, all string }{{"198.18.0.1/32", "0.0.0.0/0"}, {"fd70:726f:6374:6f72::1/128", "::/0"}} {
		a, err := netlink.ParseAddr(family.own)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(lo, a); err != nil {
			return fmt.Errorf("address %s: %w", family.own, err)
		}
		_, all, err := net.ParseCIDR(family.all)
		if err != nil {
			return err
		}
		// Without a source of its own, whoever connects does so from the address it connects to.
		route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: all, Src: a.IP, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("route %s: %w", family.all, err)
		}
	}
	return nil
}
