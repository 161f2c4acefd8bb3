// Go's client, without a C library.
package main

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

func get(url string) (string, error) {
	r, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

func main() {
	for _, url := range []string{"https://api.example/", "http://api.example/", "https://key.example/"} {
		body, err := get(url)
		fmt.Println("go", url, body, err)
	}
	began := time.Now()
	_, err := get("https://other.example/")
	fmt.Println("go", err != nil, time.Since(began) < 2*time.Second)
}
