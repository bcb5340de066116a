// Package loop is the loop of a Go program: one JSON request per line of standard input, one answer per line of
// standard output.
package loop

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Unsupported says why the client has no means for an operation.
type Unsupported string

func (reason Unsupported) Error() string { return string(reason) }

// Header is a name and a value; a nil value is null.
type Header struct {
	Name  string
	Value []byte
}

// MarshalJSON writes [name, value].
func (header Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{header.Name, header.Value})
}

// UnmarshalJSON reads [name, value].
func (header *Header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&header.Name, &header.Value})
}

// Record is a record as it is sent and as it is read.
type Record struct {
	Key       []byte   `json:"k"`
	Value     []byte   `json:"v"`
	Headers   []Header `json:"h"`
	Timestamp *int64   `json:"t"`
	Partition int32    `json:"p"`
}

// Request has the arguments of every operation.
type Request struct {
	Op         string            `json:"op"`
	Bootstrap  string            `json:"bootstrap"`
	Topic      string            `json:"topic"`
	Records    []Record          `json:"records"`
	Codec      string            `json:"codec"`
	Acks       string            `json:"acks"`
	Idempotent bool              `json:"idempotent"`
	Count      int               `json:"count"`
	Partitions int32             `json:"partitions"`
	Partition  int32             `json:"partition"`
	Timestamp  int64             `json:"timestamp"`
	Committed  bool              `json:"committed"`
	Group      string            `json:"group"`
	Protocol   string            `json:"protocol"`
	ID         string            `json:"id"`
	Commit     bool              `json:"commit"`
	Source     string            `json:"source"`
	Target     string            `json:"target"`
	Replicas   int16             `json:"replicas"`
	Config     map[string]string `json:"config"`
}

// TLS is how the brokers are reached: it trusts the authorities of the file OTTLA_TRUST. Nil, without TLS, when the
// environment names none.
func TLS() *tls.Config {
	file := os.Getenv("OTTLA_TRUST")
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(text)
	return &tls.Config{RootCAs: trusted}
}

// Login is how a client authenticates by SASL.
type Login struct{ Mechanism, User, Password string }

// SASL is that of the environment, OTTLA_SASL="MECHANISM USER PASSWORD". Nil without it.
func SASL() *Login {
	found := strings.Fields(os.Getenv("OTTLA_SASL"))
	if len(found) != 3 {
		return nil
	}
	return &Login{found[0], found[1], found[2]}
}

// Operation answers one request.
type Operation func(Request) (map[string]any, error)

// Serve answers until standard input ends.
func Serve(operations map[string]Operation) {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var request Request
		answer := map[string]any{}
		if err := json.Unmarshal(line, &request); err != nil {
			answer["error"] = err.Error()
		} else if operation, known := operations[request.Op]; !known {
			answer["unsupported"] = "the client has no such interface"
		} else {
			answer = run(operation, request)
		}
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
}

func run(operation Operation, request Request) map[string]any {
	found, err := operation(request)
	var unsupported Unsupported
	switch {
	case errors.As(err, &unsupported):
		return map[string]any{"unsupported": string(unsupported)}
	case err != nil:
		fmt.Fprintln(os.Stderr, request.Op, err)
		return map[string]any{"error": fmt.Sprintf("%T: %s", err, err)}
	case found == nil:
		found = map[string]any{}
	}
	return map[string]any{"ok": found}
}
