package bpf

import (
	"fmt"
	"runtime"
	"strconv"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"proctor/audit"
)

// native is the one ABI of a box.
var native = map[string]*arch.Info{"amd64": arch.X86_64, "arm64": arch.AARCH64}[runtime.GOARCH]

// tracepointNames are the calls whose tracepoints are named after the kernel's function
// instead.
var tracepointNames = map[string]string{
	"newstat": "stat", "newlstat": "lstat", "newfstat": "fstat", "newuname": "uname",
	"sendfile64": "sendfile", "umount": "umount2",
}

// x32Bit is set in the numbers of calls of the x32 ABI, which has x86_64's identifier.
const x32Bit = 0x40000000

// callName names a call of the ABI with that AUDIT_ARCH_* identifier.
func callName(number, abi uint32) (call, abiName string) {
	for _, a := range []*arch.Info{arch.X86_64, arch.AARCH64, arch.I386, arch.ARM} {
		if uint32(a.ID) != abi {
			continue
		}
		if a == arch.X86_64 && number&x32Bit != 0 {
			return arch.X32.SyscallNumbers[int(number&^x32Bit)], arch.X32.Name
		}
		return a.SyscallNumbers[int(number)], a.Name
	}
	return "", fmt.Sprintf("%#x", abi)
}

func decodeRefused(raw []byte) (*audit.Refused, error) {
	v, err := exact[kernRefusedEvent](raw)
	if err != nil {
		return nil, err
	}
	r := &audit.Refused{Number: v.Number, Errno: errno(v.Result)}
	r.Call, r.ABI = callName(v.Number, v.Abi)
	if v.Signal != 0 {
		r.Signal = signalName(v.Signal)
	}
	for _, a := range v.Args {
		r.Args = append(r.Args, "0x"+strconv.FormatUint(a, 16))
	}
	if r.ABI == native.Name && (r.Call == "socket" || r.Call == "socketpair") {
		// Ints, as the kernel reads them.
		r.Socket = &audit.Socket{Family: familyName(uint32(v.Args[0])), Type: socketType(uint32(v.Args[1])), Protocol: uint32(v.Args[2])}
	}
	return r, nil
}

func familyName(family uint32) string {
	if int(family) < len(families) && families[family] != "" {
		return families[family]
	}
	return strconv.Itoa(int(family))
}

// families are the names of address families by number, from socket.h.
var families = []string{
	unix.AF_UNSPEC: "AF_UNSPEC", unix.AF_UNIX: "AF_UNIX", unix.AF_INET: "AF_INET", unix.AF_AX25: "AF_AX25",
	unix.AF_IPX: "AF_IPX", unix.AF_APPLETALK: "AF_APPLETALK", unix.AF_NETROM: "AF_NETROM", unix.AF_BRIDGE: "AF_BRIDGE",
	unix.AF_ATMPVC: "AF_ATMPVC", unix.AF_X25: "AF_X25", unix.AF_INET6: "AF_INET6", unix.AF_ROSE: "AF_ROSE",
	unix.AF_DECnet: "AF_DECnet", unix.AF_NETBEUI: "AF_NETBEUI", unix.AF_SECURITY: "AF_SECURITY", unix.AF_KEY: "AF_KEY",
	unix.AF_NETLINK: "AF_NETLINK", unix.AF_PACKET: "AF_PACKET", unix.AF_ASH: "AF_ASH", unix.AF_ECONET: "AF_ECONET",
	unix.AF_ATMSVC: "AF_ATMSVC", unix.AF_RDS: "AF_RDS", unix.AF_SNA: "AF_SNA", unix.AF_IRDA: "AF_IRDA",
	unix.AF_PPPOX: "AF_PPPOX", unix.AF_WANPIPE: "AF_WANPIPE", unix.AF_LLC: "AF_LLC", unix.AF_IB: "AF_IB",
	unix.AF_MPLS: "AF_MPLS", unix.AF_CAN: "AF_CAN", unix.AF_TIPC: "AF_TIPC", unix.AF_BLUETOOTH: "AF_BLUETOOTH",
	unix.AF_IUCV: "AF_IUCV", unix.AF_RXRPC: "AF_RXRPC", unix.AF_ISDN: "AF_ISDN", unix.AF_PHONET: "AF_PHONET",
	unix.AF_IEEE802154: "AF_IEEE802154", unix.AF_CAIF: "AF_CAIF", unix.AF_ALG: "AF_ALG", unix.AF_NFC: "AF_NFC",
	unix.AF_VSOCK: "AF_VSOCK", unix.AF_KCM: "AF_KCM", unix.AF_QIPCRTR: "AF_QIPCRTR", unix.AF_SMC: "AF_SMC",
	unix.AF_XDP: "AF_XDP",
}

func socketType(kind uint32) string {
	const mask = 0xf // without SOCK_CLOEXEC and SOCK_NONBLOCK
	switch kind & mask {
	case unix.SOCK_STREAM:
		return "SOCK_STREAM"
	case unix.SOCK_DGRAM:
		return "SOCK_DGRAM"
	case unix.SOCK_RAW:
		return "SOCK_RAW"
	case unix.SOCK_RDM:
		return "SOCK_RDM"
	case unix.SOCK_SEQPACKET:
		return "SOCK_SEQPACKET"
	case unix.SOCK_DCCP:
		return "SOCK_DCCP"
	case unix.SOCK_PACKET:
		return "SOCK_PACKET"
	}
	return strconv.Itoa(int(kind & mask))
}
