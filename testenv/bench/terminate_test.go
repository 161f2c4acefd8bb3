package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"proctor/netpolicy/egress"
	"proctor/testenv"
)

// BenchmarkTerminate is requests to a host with a credential, whose TLS ends at the gateway,
// where each gets the secret and each answer is searched for it, against nginx that is set up
// to do the first half: end TLS, add the header, verify the host and pass requests on over TLS
// connections that it keeps. 16 at a time on HTTP/1.1 connections that are kept, 2 KiB each.
//
// "all" is the time that processors spent on a request, client and server included. Its ratio is
// that of requests a second where nothing else wants the processors, and holds where something
// does.
func BenchmarkTerminate(b *testing.B) {
	testenv.Root(b)
	testenv.LeakCheck(b)
	const answer, atOnce, turns = 2 << 10, 16, 7
	w := newWorld(b)
	w.serveHTTP(b, strings.Repeat("0123456789abcdef", answer/16))
	startNginx(b, w)
	r := w.newRun(b, policy(egress.Credential{
		Name: "key", Host: apiHost, Header: "Authorization", Format: "Bearer {secret}",
		Source: egress.Source{File: "/nowhere"}, Methods: []string{"GET"}, Paths: []string{"/v1/*"},
	}))
	names := []string{"gateway", "nginx"}
	clients := map[string]*clientProcess{
		"gateway": newClient(b, clientSetup{Resolver: r.resolver, CA: r.ca}, r),
		"nginx":   newClient(b, clientSetup{At: nginxAt.String(), CA: w.ca}, nil),
	}
	processes := map[string]string{"gateway": "proctor-gateway", "nginx": "nginx"}
	get := task{What: "get", N: atOnce, Bytes: answer, For: 2 * time.Second}
	warm := get
	warm.For /= 4
	for b.Loop() {
		each, took := map[string][]time.Duration{}, map[string][]time.Duration{}
		cpu, all := map[string][]time.Duration{}, map[string][]time.Duration{}
		for _, name := range names {
			clients[name].do(b, warm)
		}
		for i := range turns {
			for _, name := range turn(names, i) {
				before, allBefore := cpuTime(b, processes[name]), cpuTime(b, "")
				o := clients[name].do(b, get)
				n := time.Duration(len(o.Times))
				took[name] = append(took[name], o.Times...)
				each[name] = append(each[name], o.Took/n)
				cpu[name] = append(cpu[name], (cpuTime(b, processes[name])-before)/n)
				all[name] = append(all[name], (cpuTime(b, "")-allBefore)/n)
			}
		}
		for _, name := range names {
			b.ReportMetric(float64(time.Second)/float64(median(each[name])), name+"-req/s")
			b.ReportMetric(ms(median(took[name])), name+"-p50-ms")
			b.ReportMetric(ms(p99(took[name])), name+"-p99-ms")
			b.ReportMetric(1000*ms(median(cpu[name])), name+"-cpu-µs/req")
			b.ReportMetric(1000*ms(median(all[name])), name+"-all-cpu-µs/req")
		}
		b.ReportMetric(float64(median(each["nginx"]))/float64(median(each["gateway"])), "of-nginx")
		b.ReportMetric(float64(median(all["nginx"]))/float64(median(all["gateway"])), "of-nginx-by-cpu")
	}
	b.ReportMetric(0, "ns/op")
}

// serveHTTP answers what has the credential.
func (w *world) serveHTTP(b *testing.B, answer string) {
	b.Helper()
	l, err := tls.Listen("tcp", apiAt.String(), &tls.Config{Certificates: []tls.Certificate{w.cert}})
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0), // clients break off
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+theSecret {
				rw.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = io.WriteString(rw, answer)
		}),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		<-done
	})
}

// startNginx has one that ends TLS at nginxAt, with as many workers as there are processors,
// which is what the gateway has of threads.
func startNginx(b *testing.B, w *world) {
	b.Helper()
	binary := filepath.Join(testenv.ModuleRoot(b), "build", "bench", "nginx", "usr", "sbin", "nginx")
	if _, err := os.Stat(binary); err != nil {
		b.Fatalf("%v: `make bench` gets it", err)
	}
	dir := testenv.Dir(b)
	config := strings.NewReplacer("DIR", dir, "WORKERS", strconv.Itoa(runtime.NumCPU()), "LISTEN", nginxAt.String(),
		"UPSTREAM", apiAt.String(), "HOST", apiHost, "SECRET", theSecret).Replace(nginxConfig)
	for name, text := range map[string][]byte{"nginx.conf": []byte(config), "ca.pem": w.ca, "cert.pem": w.certPEM, "key.pem": w.keyPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	startServer(b, nginxAt, binary, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"), "-e", "stderr")
}

const nginxConfig = `
daemon off;
user root;
pid DIR/pid;
error_log stderr error;
worker_processes WORKERS;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path DIR/body;
	proxy_temp_path DIR/proxy;
	fastcgi_temp_path DIR/fastcgi;
	uwsgi_temp_path DIR/uwsgi;
	scgi_temp_path DIR/scgi;
	keepalive_requests 1000000000;
	upstream api {
		server UPSTREAM;
		keepalive 64;
		keepalive_requests 1000000000;
	}
	server {
		listen LISTEN ssl;
		ssl_certificate DIR/cert.pem;
		ssl_certificate_key DIR/key.pem;
		ssl_protocols TLSv1.2 TLSv1.3;
		location / {
			proxy_pass https://api;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Host HOST;
			proxy_set_header Authorization "Bearer SECRET";
			proxy_ssl_protocols TLSv1.2 TLSv1.3;
			proxy_ssl_server_name on;
			proxy_ssl_name HOST;
			proxy_ssl_verify on;
			proxy_ssl_trusted_certificate DIR/ca.pem;
		}
	}
}
`

// cpuTime is what this process's children of that name, and theirs, have had of the processors;
// without a name, all of them and itself.
func cpuTime(b *testing.B, name string) (total time.Duration) {
	b.Helper()
	const perSecond = 100 // USER_HZ
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	parents, spent := map[int]int{}, map[int]time.Duration{}
	for _, stat := range stats {
		text, _ := os.ReadFile(stat) // the process may be gone
		begin, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
		if end < 0 {
			continue
		}
		var pid, parent int
		var user, system time.Duration
		fields := strings.Fields(string(text[end+1:])) // from the state on
		_, err := fmt.Sscan(string(text[:begin])+fields[1]+" "+fields[11]+" "+fields[12], &pid, &parent, &user, &system)
		if err != nil {
			b.Fatal(err)
		}
		parents[pid] = parent
		if name == "" || string(text[begin+1:end]) == name {
			spent[pid] = (user + system) * time.Second / perSecond
		}
	}
	for pid, d := range spent {
		if self := os.Getpid(); pid == self || parents[pid] == self || parents[parents[pid]] == self {
			total += d
		}
	}
	return total
}
