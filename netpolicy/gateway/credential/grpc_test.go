package credential

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"proctor/netpolicy/egress"
)

// raw sends messages as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "raw" }

func TestGRPC(t *testing.T) {
	u := newUpstreams(t, hostA)
	leaf, err := u.ca.Leaf(hostA)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(leaf)), grpc.ForceServerCodec(raw{}),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			md, _ := metadata.FromIncomingContext(s.Context())
			s.SetTrailer(metadata.Pairs("x-echo", fmt.Sprint(md["authorization"])))
			for {
				var m []byte
				if err := s.RecvMsg(&m); err == io.EOF {
					return status.Error(codes.DataLoss, "seen "+fmt.Sprint(md["authorization"]))
				} else if err != nil {
					return err
				}
				m = append(m, '!')
				if err := s.SendMsg(&m); err != nil {
					return err
				}
			}
		}))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { server.Serve(ln); close(done) }()
	t.Cleanup(func() { server.Stop(); <-done })
	r := newRun(t, runOptions{
		credentials: []egress.Credential{bearer(hostA)}, secrets: map[string]string{"key-of-" + hostA: plainSecret},
		to: map[string]string{hostA: ln.Addr().String()}, roots: u.roots,
	})
	conn, err := grpc.NewClient("passthrough:///"+hostA,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: poolOf(t, r.ca)})),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", r.listeners[hostA])
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test.Echo/Chat")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		m := fmt.Appendf(nil, "message %d", i)
		if err := s.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
		var back []byte
		if err := s.RecvMsg(&back); err != nil || string(back) != string(m)+"!" {
			t.Fatalf("got %q, %v", back, err)
		}
	}
	s.CloseSend()
	var back []byte
	err = s.RecvMsg(&back)
	if status.Code(err) != codes.DataLoss || status.Convert(err).Message() != "seen [Bearer [redacted]]" {
		t.Errorf("end: %v", err)
	}
	if got := fmt.Sprint(s.Trailer()["x-echo"]); got != "[[Bearer [redacted]]]" {
		t.Errorf("trailer %s", got)
	}
}
