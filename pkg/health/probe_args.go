package health

import (
	"errors"
	"fmt"
	"strings"
)

// splitCommandLine splits a command line like a shell, without any other function of a shell:
// unquoted characters that a shell would interpret are errors, because they would reach the command
// as unexpected arguments.
func splitCommandLine(line string) ([]string, error) {
	w := wordSplitter{}
	for i := range len(line) {
		if err := w.addByte(line[i]); err != nil {
			return nil, err
		}
	}
	switch {
	case w.escaped:
		return nil, errors.New("it ends in a backslash")
	case w.quote != 0:
		return nil, fmt.Errorf("its last %c is not closed", w.quote)
	}
	w.endWord()
	return w.words, nil
}

type wordSplitter struct {
	words   []string
	word    strings.Builder
	inWord  bool // a word has begun, possibly with an empty pair of quotes
	quote   byte // the open quote, or 0
	escaped bool // the previous byte was a backslash
}

func (w *wordSplitter) addByte(c byte) error {
	switch {
	case c == 0:
		return errors.New("it contains a NUL byte")
	case w.escaped:
		w.escaped = false
		if w.quote == '"' && strings.IndexByte("\"\\$`", c) < 0 {
			w.word.WriteByte('\\')
		}
		w.word.WriteByte(c)
	case c == '\\' && w.quote != '\'':
		w.escaped, w.inWord = true, true
	case w.quote != 0 && c == w.quote:
		w.quote = 0
	case w.quote == '"' && (c == '$' || c == '`'), w.quote == 0 && strings.IndexByte("$`|&;<>()", c) >= 0:
		return fmt.Errorf("it is not run by a shell: quote %q by ' or \\, or use exec:sh -c '…'", c)
	case w.quote != 0:
		w.word.WriteByte(c)
	case c == '\'' || c == '"':
		w.quote, w.inWord = c, true
	case strings.IndexByte(" \t\n", c) >= 0:
		w.endWord()
	default:
		w.inWord = true
		w.word.WriteByte(c)
	}
	return nil
}

func (w *wordSplitter) endWord() {
	if w.inWord {
		w.words = append(w.words, w.word.String())
	}
	w.word.Reset()
	w.inWord = false
}
