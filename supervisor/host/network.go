package host

import (
	"bufio"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"proctor/supervisor"
	"proctor/supervisor/config"
)

// network finds out what gateways are told of this host.
func network(c *config.Config) (supervisor.Network, error) {
	n := supervisor.Network{Gateway: filepath.Join(c.LibDir, "proctor-gateway"), Addresses: addresses}
	if _, err := os.Stat(n.Gateway); err != nil {
		return n, fmt.Errorf("network: the gateway's program: %w", err)
	}
	var err error
	if n.Resolvers, err = resolvers(c.Network.Resolvers); err != nil {
		return n, fmt.Errorf("network: %w", err)
	}
	if n.Roots, err = roots(c.Network.CAFile); err != nil {
		return n, fmt.Errorf("network: %w", err)
	}
	return n, nil
}

const dnsPort = 53

// resolvers are those that are configured, or the system's. That there are none is no error:
// no name is found then.
func resolvers(configured []string) ([]netip.AddrPort, error) {
	var list []netip.AddrPort
	for _, text := range configured {
		r, err := netip.ParseAddrPort(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("resolver %q: write ADDRESS or ADDRESS:PORT, such as 10.0.0.2", text)
			}
			r = netip.AddrPortFrom(a, dnsPort)
		}
		list = append(list, r)
	}
	if len(list) > 0 {
		return list, nil
	}
	f, err := os.Open("/etc/resolv.conf")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			list = append(list, netip.AddrPortFrom(a, dnsPort))
		}
	}
	return list, nil
}

// cause is what went wrong, without the call and the path.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// bundles are where systems keep the certificates of authorities: Debian's, Fedora's, SUSE's
// and Alpine's place.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// roots are the certificates in a file, or the system's. That the system has none is no error:
// no host is believed then.
func roots(file string) ([]byte, error) {
	if file != "" {
		data, err := os.ReadFile(file)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(data) {
			err = errors.New("no certificate is in it: give a file in PEM")
		}
		if err != nil {
			return nil, fmt.Errorf("ca_file %s: %w", file, cause(err))
		}
		return data, nil
	}
	for _, b := range bundles {
		data, err := os.ReadFile(b)
		if !errors.Is(err, fs.ErrNotExist) {
			return data, err
		}
	}
	return nil, nil
}

// addresses are all that this host has.
func addresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var list []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, p.Addr().Unmap().WithZone(""))
		}
	}
	return list, nil
}
