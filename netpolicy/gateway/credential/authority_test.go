package credential

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proctor/testenv"
)

func TestAuthority(t *testing.T) {
	long := strings.Repeat("a.", 40) + hostA
	ca, err := NewAuthority("r7", []string{hostA, long})
	if err != nil {
		t.Fatal(err)
	}
	c := ca.cert
	if c.Subject.CommonName != "Proctor run r7" || !c.IsCA || !c.MaxPathLenZero || !c.PermittedDNSDomainsCritical {
		t.Errorf("certificate %+v", c.Subject)
	}
	if d := time.Until(c.NotAfter); d > validAfter || d < validAfter-time.Minute {
		t.Errorf("good for %v", d)
	}
	if d := time.Since(c.NotBefore); d < validBefore || d > validBefore+time.Minute {
		t.Errorf("good since %v", d)
	}
	if strings.Contains(string(ca.PEM()), "KEY") {
		t.Error("the PEM has a key")
	}
	for _, host := range []string{hostA, long} {
		leaf, err := ca.Leaf(host)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := ca.Leaf(host); again != leaf {
			t.Error("a second certificate was made")
		}
		if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: poolOf(t, ca), DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
		if len(leaf.Leaf.DNSNames) != 1 || leaf.Leaf.IsCA {
			t.Errorf("%s: %v", host, leaf.Leaf.DNSNames)
		}
	}
	if _, err := ca.Leaf(hostB); err == nil {
		t.Error("a certificate for a host without a credential")
	}
	for _, hosts := range [][]string{nil, {""}, {"127.0.0.1"}, {"::1"}, {".example"}} {
		if _, err := NewAuthority("r", hosts); err == nil {
			t.Errorf("%q: made", hosts)
		}
	}
}

// Even its own key can't vouch for anybody else.
func TestConstraintsHold(t *testing.T) {
	ca, err := NewAuthority("r7", []string{hostA})
	if err != nil {
		t.Fatal(err)
	}
	ca.hosts = append(ca.hosts, hostB) // as if the key were used for more
	leaf, err := ca.Leaf(hostB)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: poolOf(t, ca), DNSName: hostB}); err == nil {
		t.Error("Go takes a certificate for another host")
	}
	openssl := testenv.Tool(t, "openssl")
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "ca"), ca.PEM(), 0o600)
	os.WriteFile(filepath.Join(dir, "leaf"), pemOf(leaf.Leaf), 0o600)
	out, err := exec.Command(openssl, "verify", "-x509_strict", "-CAfile", filepath.Join(dir, "ca"), filepath.Join(dir, "leaf")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "permitted subtree") {
		t.Errorf("openssl: %s", out)
	}
}

// Clients as code has them must take the certificates. Those that are not installed are logged.
func TestOrdinaryClientsTakeTheCertificate(t *testing.T) {
	r := simple(t, true, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "asked with %s\n", r.Header.Get("User-Agent"))
	}, nil)
	dir := t.TempDir()
	caFile := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(caFile, r.ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	leaf, _ := r.ca.Leaf(hostA)
	leafFile := filepath.Join(dir, "leaf.pem")
	os.WriteFile(leafFile, pemOf(leaf.Leaf), 0o600)
	addr := r.listeners[hostA]
	_, port, _ := strings.Cut(addr, ":")

	for _, x := range []struct {
		name, want string
		argv       []string
	}{
		{"openssl verify", "OK", []string{"openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", hostA, "-CAfile", caFile, leafFile}},
		{"curl", "asked with curl", []string{"curl", "-sS", "--cacert", caFile, "--connect-to", hostA + ":443:" + addr, "https://" + hostA + "/"}},
		{"curl, HTTP/1.1", "asked with curl", []string{"curl", "-sS", "--http1.1", "--compressed", "--cacert", caFile, "--connect-to", hostA + ":443:" + addr, "https://" + hostA + "/"}},
		{"python", "200 OK", []string{"python3", "-c", pythonClient, caFile, port, hostA}},
		{"node", "asked with node-test", []string{"node", "-e", nodeClient, caFile, port, hostA}},
	} {
		t.Run(x.name, func(t *testing.T) {
			path := testenv.Tool(t, x.argv[0])
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			out, err := exec.CommandContext(ctx, path, x.argv[1:]...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), x.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

const pythonClient = `
import socket, ssl, sys
ca, port, host = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.verify_flags |= ssl.VERIFY_X509_STRICT
with context.wrap_socket(socket.create_connection(("127.0.0.1", int(port))), server_hostname=host) as s:
    s.sendall(b"GET / HTTP/1.1\r\nHost: " + host.encode() + b"\r\nConnection: close\r\n\r\n")
    print(s.recv(1000))
`

const nodeClient = `
const [ca, port, host] = process.argv.slice(1);
require("https").get({host: "127.0.0.1", port, servername: host, ca: require("fs").readFileSync(ca),
  headers: {host, "user-agent": "node-test"}}, res => res.pipe(process.stdout));
`
