package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

const apiHost = "api.example"

// The addresses of what is outside: loopback ones that no other test listens on.
var (
	outside  = netip.MustParsePrefix("127.77.1.0/24")
	apiAt    = netip.MustParseAddrPort("127.77.1.1:443")
	socatAt  = netip.MustParseAddrPort("127.77.1.2:443")
	socat64  = netip.MustParseAddrPort("127.77.1.3:443")
	nginxAt  = netip.MustParseAddrPort("127.77.1.4:443")
	testNet1 = netip.MustParseAddrPort("192.0.2.1:53")
)

// A world is what there is outside of a run: a resolver that knows one name, and an authority
// for that host's certificate.
type world struct {
	resolver netip.AddrPort
	ca       []byte // PEM
	cert     tls.Certificate
	certPEM  []byte
	keyPEM   []byte
}

func newWorld(b *testing.B) *world {
	b.Helper()
	w := &world{}
	w.makeCertificate(b)
	w.serveDNS(b)
	return w
}

func (w *world) makeCertificate(b *testing.B) {
	b.Helper()
	caKey, key := newKey(b), newKey(b)
	ca := sign(b, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the world of a benchmark"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, caKey, caKey)
	leaf := sign(b, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: apiHost}, DNSNames: []string{apiHost},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, key, caKey)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		b.Fatal(err)
	}
	w.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	w.certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})
	w.keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	w.cert = tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}
}

func newKey(b *testing.B) *ecdsa.PrivateKey {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	return key
}

// sign makes a certificate of key's public half. Without a parent it signs itself.
func sign(b *testing.B, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	b.Helper()
	if parent == nil {
		parent = template
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		b.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		b.Fatal(err)
	}
	return cert
}

// serveDNS has a resolver, which knows apiHost alone.
func (w *world) serveDNS(b *testing.B) {
	b.Helper()
	conn, err := net.ListenPacket("udp", netip.AddrPortFrom(apiAt.Addr(), 0).String())
	if err != nil {
		b.Fatal(err)
	}
	w.resolver = conn.LocalAddr().(*net.UDPAddr).AddrPort()
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(to dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		if name := q.Question[0].Name; name != apiHost+"." {
			m.Rcode = dns.RcodeNameError
		} else if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: apiAt.Addr().AsSlice()}}
		}
		_ = to.WriteMsg(m)
	})}
	done := make(chan error, 1)
	go func() { done <- server.ActivateAndServe() }()
	b.Cleanup(func() {
		conn.Close()
		<-done
	})
}

// serve has a server with the host's certificate.
func (w *world) serve(b *testing.B, serve func(net.Conn)) {
	b.Helper()
	l, err := tls.Listen("tcp", apiAt.String(), &tls.Config{Certificates: []tls.Certificate{w.cert}})
	if err != nil {
		b.Fatal(err)
	}
	var serving sync.WaitGroup
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[c] = true
			mu.Unlock()
			serving.Go(func() {
				serve(c)
				c.Close()
				mu.Lock()
				delete(conns, c)
				mu.Unlock()
			})
		}
	})
	b.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range conns {
			c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
}
