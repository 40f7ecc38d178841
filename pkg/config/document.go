package config

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Document returns the configuration as YAML, with the origin of each value. Settings that the
// subcommand determines are omitted.
func (all List) Document(framework string, driver []string) *yaml.Node {
	top := &yaml.Node{Kind: yaml.MappingNode}
	add := func(key, origin string, value *yaml.Node) {
		value.LineComment = origin
		top.Content = append(top.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	}
	for _, s := range all {
		if s.IsFileKey() && s.IsForFramework(framework) && s.Source != SourceCommand {
			origin := s.SourceName()
			if s.site.line != "" && s.Source != SourceSite {
				origin = s.site.line + ", " + origin
			}
			add(s.Name, origin, yamlNode(s.CurrentValue()))
		}
	}
	add(DriverFileKey, "", yamlNode(driver))
	return top
}

func yamlNode(value any) *yaml.Node {
	switch value := value.(type) {
	case string:
		return textNode(textutil.RedactText(value))
	case []string:
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, word := range textutil.RedactArgs(value) {
			list.Content = append(list.Content, textNode(word))
		}
		return list
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: ""}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(value)}
	}
}

// textNode returns a text on one line, because YAML comments are misplaced beside several.
func textNode(text string) *yaml.Node {
	word := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if text == "" || strings.Contains(text, "\n") {
		word.Style = yaml.DoubleQuotedStyle
	}
	return word
}

// GivenFlags returns the settings that are among defaults and differ from them, as flags. It omits
// the run's name, which is known, and hides secrets and the values of variables.
func (all List) GivenFlags(defaults List) (flags []string) {
	for _, s := range all {
		usual := defaults.FindSetting(s.Name)
		isPublished := s.IsFileKey() || s.Name == "config" // the file has the roles
		if !s.IsSet() || !isPublished || s.Name == "job-id" || usual == nil ||
			reflect.DeepEqual(s.CurrentValue(), usual.CurrentValue()) {
			continue
		}
		values, isList := s.CurrentValue().([]string)
		if !isList {
			values = []string{fmt.Sprint(s.CurrentValue())}
		}
		for _, value := range values {
			switch name, _, isPair := strings.Cut(value, "="); {
			case s.IsBoolFlag() && value == "true":
				flags = append(flags, "--"+s.Name)
				continue
			case isPair && strings.HasPrefix(s.Placeholder, "NAME"):
				value = name + "=…"
			}
			flags = append(flags, "--"+s.Name+"="+value)
		}
	}
	return textutil.RedactArgs(flags)
}
