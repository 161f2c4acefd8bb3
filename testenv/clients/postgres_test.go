package clients

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// servePostgres is a database that knows one answer. Its clients speak first in the open, and
// then in TLS on the same connection.
func servePostgres(t *testing.T, at string, config *tls.Config) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if err := postgres(c, config); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("database: %v", err)
			}
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
}

func postgres(c net.Conn, config *tls.Config) error {
	b := pgproto3.NewBackend(c, c)
	m, err := b.ReceiveStartupMessage()
	if err != nil {
		return err
	}
	if _, secure := m.(*pgproto3.SSLRequest); secure {
		if _, err := c.Write([]byte("S")); err != nil {
			return err
		}
		c = tls.Server(c, config)
		b = pgproto3.NewBackend(c, c)
		if _, err := b.ReceiveStartupMessage(); err != nil {
			return err
		}
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if err := b.Flush(); err != nil {
		return err
	}
	for {
		m, err := b.Receive()
		if err != nil {
			return err
		}
		switch m.(type) {
		case *pgproto3.Query:
			b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("one"), DataTypeOID: 23, DataTypeSize: 4, TypeModifier: -1}}})
			b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("1")}})
			b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			if err := b.Flush(); err != nil {
				return err
			}
		case *pgproto3.Terminate:
			return nil
		}
	}
}
