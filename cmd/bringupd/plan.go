package main

import (
	"bytes"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/roles"
)

// printConfig prints the configuration of a daemon, as a file for --config, and which node it is, as
// a comment. A mistake of the launch is part of the output, and determines the exit code.
func (inv *invocation) printConfig(all config.List, cfg deps.Config, role roles.DaemonRole, launch error) error {
	var b bytes.Buffer
	b.WriteString("# precedence: flag > variable > file > " + config.SitePath + " > default; secrets are omitted\n")
	encoder := yaml.NewEncoder(&b)
	if err := encoder.Encode(all.Document(cfg.Framework.Name(), cfg.Driver)); err != nil {
		return fmt.Errorf("cannot print the configuration: %v", err)
	}
	if id := cfg.Identity; launch == nil {
		fmt.Fprintf(&b, "\n# node %d of %d on %s, launched by %s, is %s\n", id.NodeIndex, id.Size,
			config.EscapeLineEnds(id.Host), id.Launcher, role)
	}
	for _, sentence := range cfg.LaunchWarnings() {
		fmt.Fprintf(&b, "# warning: %s\n", config.EscapeLineEnds(sentence))
	}
	if _, err := inv.streams.Out.Write(b.Bytes()); err != nil {
		return err
	}
	return launch
}

// printRoles prints the roles of a job as a file for --config, with the commands as they were given.
// It also does so where no launcher has started it, such as in a job script.
func (inv *invocation) printRoles(cfg deps.Config) error {
	file, err := cfg.RoleFile()
	if err != nil {
		return usageErrorf("%v", err)
	}
	text, err := file.Format()
	if err != nil {
		return usageErrorf("%v", err)
	}
	_, err = io.WriteString(inv.streams.Out, text)
	return err
}
