package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

var completionCommand = &cli.Command{
	Name: "completion", Usage: "print a shell's completion script", ArgsUsage: "bash|zsh",
	Description: `For bash:  source <(proctor completion bash)
For zsh:   source <(proctor completion zsh)`,
	OnUsageError: usageError,
	Action: func(c *cli.Context) error {
		scripts := map[string]string{"bash": bashCompletion, "zsh": zshCompletion}
		script, ok := scripts[c.Args().First()]
		if !ok {
			return usagef("shell %q: it is bash or zsh", c.Args().First())
		}
		if _, err := one(c, ""); err != nil {
			return err
		}
		fmt.Print(script)
		return nil
	},
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
		fmt.Print(page)
		return nil
	},
}
