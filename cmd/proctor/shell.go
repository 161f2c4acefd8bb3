package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

var completionCommand = &cli.Command{
	Name: "completion", Usage: "print a shell's completion script", ArgsUsage: "bash|zsh",
	Description: `For bash:  source <(proctor completion bash)
For zsh:   source <(proctor completion zsh)`,
	OnUsageError: usageError,
	BashComplete: func(c *cli.Context) { offer(c, "bash", "zsh") },
	Action: func(c *cli.Context) error {
		scripts := map[string]string{"bash": bashCompletion, "zsh": zshCompletion}
		script, ok := scripts[c.Args().First()]
		if !ok {
			return usagef("shell %q: it is bash or zsh", c.Args().First())
		}
		if _, err := one(c, ""); err != nil {
			return err
		}
		_, err := fmt.Fprint(c.App.Writer, script)
		return err
	},
}

// choices are what flags take that take one of few words.
var choices = map[string][]string{
	"output": {"text", "json"}, "log-format": {"text", "json"}, "log-level": {"debug", "info", "warn", "error"},
}

// offer prints what may follow: words that a flag takes where it is the last, a command's first argument,
// and else what the library finds.
func offer(c *cli.Context, arguments ...string) {
	last := ""
	if len(os.Args) > 2 {
		last = os.Args[len(os.Args)-2] // before --generate-bash-completion; the library does not keep it
	}
	words := arguments
	if c.Args().Present() || strings.HasPrefix(last, "-") {
		words = nil
	}
	for _, f := range c.Command.Flags {
		if slices.ContainsFunc(f.Names(), func(name string) bool { return dashed(name) == last }) {
			words = choices[f.Names()[0]]
		}
	}
	if words == nil {
		cli.DefaultCompleteWithFlags(c.Command)(c)
		return
	}
	fmt.Fprintln(c.App.Writer, strings.Join(words, "\n"))
}

const bashCompletion = `_proctor() {
	local words=("${COMP_WORDS[@]:0:$COMP_CWORD}") current="${COMP_WORDS[$COMP_CWORD]}" offered
	if [[ $current == -* ]]; then words+=("$current"); fi
	offered=$("${words[@]}" --generate-bash-completion 2>/dev/null | cut -d: -f1)
	COMPREPLY=($(compgen -W "$offered" -- "$current"))
}
complete -o default -F _proctor proctor
`

const zshCompletion = `#compdef proctor
_proctor() {
	local -a offered
	local current=${words[-1]}
	if [[ $current == -* ]]; then
		offered=("${(@f)$(${words[@]:0:#words[@]-1} ${current} --generate-bash-completion 2>/dev/null)}")
	else
		offered=("${(@f)$(${words[@]:0:#words[@]-1} --generate-bash-completion 2>/dev/null)}")
	fi
	if [[ -n ${offered[1]} ]]; then _describe 'proctor' offered; else _files; fi
}
compdef _proctor proctor
`

var manCommand = &cli.Command{
	Name: "man", Usage: "print the manual page",
	OnUsageError: usageError,
	Action: func(c *cli.Context) error {
		if err := noArgs(c); err != nil {
			return err
		}
		page, err := c.App.ToManWithSection(1)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(c.App.Writer, page, manMore)
		return err
	},
}

// manMore is what the library does not write of a manual page.
const manMore = `
.SH EXIT STATUS
.TP
\fB0\fP
done; of \fBproctor run\fP: the program ended with code 0
.TP
\fB1\fP
checked and found wrong, as by \fBproctor doctor\fP, \fBproctor profile check\fP and \fBproctor alerts test\fP
.TP
\fB2\fP
wrong usage
.TP
\fB124\fP
of \fBproctor run\fP: the program was ended at its deadline
.TP
\fB125\fP
Proctor could not do it, or refused to; \fBproctor run --json\fP says why
.TP
\fB130\fP
interrupted
.TP
\fB137\fP
of \fBproctor run\fP: the program was killed, for memory or by somebody
.TP
\fIother\fP
of \fBproctor run\fP: the program's own code, or 128 and the signal that ended it
.SH ENVIRONMENT
.TP
\fBPROCTOR_SOCKET\fP
the supervisor's socket, where --socket is not given
.TP
\fBPROCTOR_PROFILES\fP
where \fBproctor profile\fP looks, where --profiles is not given
.SH FILES
.TP
\fI/etc/proctor/proctor.yaml\fP
the supervisor's settings
.TP
\fI/etc/proctor/profiles/NAME.yaml\fP
what runs may do and reach
.TP
\fI/var/lib/proctor\fP
records of runs, incidents, images, and what containerd keeps
.TP
\fI/run/proctor/proctor.sock\fP
the supervisor's socket
`
