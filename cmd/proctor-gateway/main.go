// proctor-gateway is the network of one run: what its supervisor starts it for is in package
// gateway. It is of no use by hand.
package main

import (
	"fmt"
	"os"

	"proctor/netpolicy/gateway"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "proctor-gateway is started by `proctor serve`, and takes no arguments")
		os.Exit(2)
	}
	if err := gateway.Main(); err != nil {
		fmt.Fprintln(os.Stderr, "proctor-gateway:", err)
		os.Exit(1)
	}
}
