// What Go programs do. It is built by the test, statically, and run in a box.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func check(holds bool, what ...any) {
	if !holds {
		log.Fatalln(what...)
	}
}

func main() {
	log.SetFlags(log.Lshortfile)
	cpus, err := strconv.Atoi(os.Args[1])
	check(err == nil, err)
	check(runtime.NumCPU() == cpus && runtime.GOMAXPROCS(0) == cpus, "processors", runtime.NumCPU(), runtime.GOMAXPROCS(0), cpus)

	var wg sync.WaitGroup
	results := make(chan int, 10_000)
	for i := range 10_000 {
		wg.Go(func() { results <- i })
	}
	wg.Wait()
	// As many threads as goroutines that block in the kernel.
	for range 100 {
		wg.Go(func() { syscall.Nanosleep(&syscall.Timespec{Nsec: 100_000_000}, nil) })
	}
	wg.Wait()
	ticker := time.NewTicker(5 * time.Millisecond)
	for range 10 {
		<-ticker.C
	}
	for range 2000 {
		garbage = make([]byte, 1<<20)
	}

	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") })}
	for _, host := range []string{"127.0.0.1", "::1", "localhost", ""} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		check(err == nil, err)
		go server.Serve(l)
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if host == "" {
			host = "localhost"
		}
		for range 50 {
			wg.Go(func() {
				resp, err := http.Get("http://" + net.JoinHostPort(host, port))
				check(err == nil, err)
				body, err := io.ReadAll(resp.Body)
				check(err == nil && string(body) == "hello", err)
				resp.Body.Close()
			})
		}
		wg.Wait()
	}
	l, err := net.Listen("unix", "/tmp/go.sock")
	check(err == nil, err)
	go func() {
		c, err := net.Dial("unix", "/tmp/go.sock")
		check(err == nil, err)
		io.WriteString(c, "x")
	}()
	c, err := l.Accept()
	check(err == nil, err)
	_, err = c.Read(make([]byte, 1))
	check(err == nil, err)

	began := time.Now()
	_, err = net.Dial("tcp", "198.51.100.7:80")
	check(errors.Is(err, syscall.EPERM), err)
	_, err = net.LookupHost("no.such.example")
	check(err != nil, "the resolver answered")
	check(time.Since(began) < 2*time.Second, "waited", time.Since(began))
	interfaces, err := net.Interfaces()
	check(err == nil && len(interfaces) == 1, err, interfaces)

	out, err := exec.Command("sh", "-c", "echo $((6*7))").Output()
	check(err == nil && string(out) == "42\n", err)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	check(exec.CommandContext(ctx, "sleep", "60").Run() != nil, "sleep")
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	<-caught

	check(os.WriteFile("file", []byte("x"), 0o600) == nil, "write")
	check(filepath.WalkDir("/usr/share/zoneinfo", func(string, os.DirEntry, error) error { return nil }) == nil, "walk")
	root, err := os.OpenRoot(".")
	check(err == nil, err)
	_, err = root.Open("file")
	check(err == nil, err)
	check(os.RemoveAll("file") == nil, "remove")
	me, err := user.Current()
	check(err == nil && me.Username == "agent" && me.HomeDir == "/scratch", err, me)
	for _, dir := range []func() (string, error){os.UserCacheDir, os.UserConfigDir} {
		d, err := dir()
		check(err == nil && os.MkdirAll(d, 0o700) == nil, err)
	}
	host, err := os.Hostname()
	check(err == nil && host == "box", err, host)
	zone, err := time.LoadLocation("Asia/Tokyo")
	check(err == nil && time.Unix(0, 0).In(zone).Hour() == 9, err)
	rand.Read(make([]byte, 1000))
	fmt.Println("ok")
}

var garbage []byte
