// Package outside is a world outside of runs, for tests: a resolver, and servers with
// certificates of an authority of its own. All of it is on loopback addresses, which a granted
// name leads to only where a profile grants them as a range, too.
package outside

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"proctor/testenv"
)

// A World lives as long as its test.
type World struct {
	Dir      string         // of its files
	Resolver netip.AddrPort // the host's, as a supervisor is told

	ca  *x509.Certificate
	key *ecdsa.PrivateKey

	mu    sync.Mutex
	hosts map[string][]netip.Addr
	asked []string
}

// New makes a world where these names exist.
func New(t testing.TB, hosts map[string][]netip.Addr) *World {
	t.Helper()
	w := &World{Dir: testenv.Dir(t), hosts: hosts}
	w.serveDNS(t)
	if err := w.makeAuthority(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *World) serveDNS(t testing.TB) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.Resolver = conn.LocalAddr().(*net.UDPAddr).AddrPort()
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(w.answer)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ActivateAndServe() // it ends with its socket
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
}

func (w *World) answer(to dns.ResponseWriter, q *dns.Msg) {
	w.mu.Lock()
	name := strings.TrimSuffix(q.Question[0].Name, ".")
	addresses, known := w.hosts[name]
	w.asked = append(w.asked, name)
	w.mu.Unlock()
	m := new(dns.Msg)
	m.SetReply(q)
	if !known {
		m.Rcode = dns.RcodeNameError
	}
	for _, a := range addresses {
		head := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET, Ttl: 60}
		switch {
		case a.Is4() && q.Question[0].Qtype == dns.TypeA:
			m.Answer = append(m.Answer, &dns.A{Hdr: head, A: a.AsSlice()})
		case a.Is6() && q.Question[0].Qtype == dns.TypeAAAA:
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: head, AAAA: a.AsSlice()})
		}
	}
	_ = to.WriteMsg(m)
}

// Asked are the names that the resolver was asked for so far.
func (w *World) Asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

func (w *World) makeAuthority() (err error) {
	if w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the world of a test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &w.key.PublicKey, w.key)
	if err != nil {
		return err
	}
	if w.ca, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	return os.WriteFile(w.CAFile(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// CAFile holds the authority's certificate.
func (w *World) CAFile() string { return filepath.Join(w.Dir, "ca.pem") }

// TLS is for a server of these names.
func (w *World) TLS(t testing.TB, names ...string) *tls.Config {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, w.ca, &w.key.PublicKey, w.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: w.key}}}
}

// Config writes profiles, by name, and a proctor.yaml that has them and this world, and
// returns its path.
func (w *World) Config(t testing.TB, profiles map[string]string) string {
	t.Helper()
	dir := filepath.Join(w.Dir, "profiles")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range profiles {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(w.Dir, "proctor.yaml")
	text := fmt.Sprintf("profiles: %s\nnetwork:\n  resolvers: [%q]\n  ca_file: %s\n", dir, w.Resolver, w.CAFile())
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return config
}
