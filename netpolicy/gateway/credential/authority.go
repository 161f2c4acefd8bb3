package credential

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"
)

// How long an Authority's certificates are good, around the time that it was made.
const (
	validBefore = 5 * time.Minute // clocks differ
	validAfter  = 25 * time.Hour
)

// An Authority is the certificate authority of one run. Its key is in memory alone and never
// leaves; its certificate is good for the hosts that it was made for, and names below them, and
// for nothing else. It is safe for use by many goroutines.
type Authority struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	hosts []string

	mu     *sync.Mutex
	leaves map[string]*tls.Certificate // at most one for each host
}

// Format hides the key from every verb.
func (Authority) Format(f fmt.State, _ rune) { fmt.Fprint(f, "credential.Authority") }

// NewAuthority makes one for a run and its hosts, which are names in their one spelling.
func NewAuthority(run string, hosts []string) (*Authority, error) {
	if len(hosts) == 0 {
		return nil, errors.New("certificate authority: no host has a credential: make none")
	}
	for _, h := range hosts {
		if h == "" || len(h) > 253 || h[0] == '.' || net.ParseIP(h) != nil {
			return nil, fmt.Errorf("certificate authority: %q is not a plain host name", h)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: make key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	_, all4, _ := net.ParseCIDR("0.0.0.0/0")
	_, all6, _ := net.ParseCIDR("::/0")
	der, err := sign(&x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "Proctor run " + run},
		NotBefore:             now.Add(-validBefore),
		NotAfter:              now.Add(validAfter),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,

		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         slices.Clone(hosts),
		ExcludedIPRanges:            []*net.IPNet{all4, all6},
	}, nil, key, key)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	return &Authority{
		cert: der, key: key, hosts: slices.Clone(hosts),
		mu: new(sync.Mutex), leaves: map[string]*tls.Certificate{},
	}, nil
}

// PEM returns the certificate, without the key, for the run's trust store.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Hosts returns the names that the authority is good for.
func (a *Authority) Hosts() []string { return slices.Clone(a.hosts) }

// Leaf returns the certificate of exactly this host, which is made once. The caller must not
// change it. Only the authority's own hosts have one.
func (a *Authority) Leaf(host string) (*tls.Certificate, error) {
	if !slices.Contains(a.hosts, host) {
		return nil, fmt.Errorf("certificate of %q: not a host that this run has a credential for", host)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if leaf := a.leaves[host]; leaf != nil {
		return leaf, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate of %q: make key: %w", host, err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	subject := pkix.Name{CommonName: host}
	if len(host) > 64 { // the most that a common name can have
		subject = pkix.Name{Organization: []string{"Proctor"}}
	}
	cert, err := sign(&x509.Certificate{
		SerialNumber:          serial,
		Subject:               subject,
		DNSNames:              []string{host},
		NotBefore:             a.cert.NotBefore,
		NotAfter:              a.cert.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}, a.cert, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("certificate of %q: %w", host, err)
	}
	leaf := &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
	a.leaves[host] = leaf
	return leaf, nil
}

// sign returns the certificate of key's public half. Without a parent it signs itself.
func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return x509.ParseCertificate(der)
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("serial number of a certificate: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}
