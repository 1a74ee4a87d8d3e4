// Package inspect reads a report page as a browser would, and says what is wrong with it.
package inspect

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// Page is what a page is made of.
type Page struct {
	Tags     []string // of all elements, in order
	Text     string   // what a reader sees, in elements and in hints
	Problems []string
	ids      map[string]int
	links    []string
	open     []string
	policy   string
	inline   map[string][]string // texts of style and script elements
}

// void elements have no end.
var void = []string{"meta", "br", "hr", "input"}

// allowed are the elements of a page that loads and sends nothing.
var allowed = strings.Fields(`html head meta title style script body header main footer section p a span b em small code div h1 h2 ul li dl dt dd
	table thead tbody tr th td fieldset legend label input svg defs pattern lineargradient stop g rect path circle line text`)

// Read takes a page apart.
func Read(page []byte) Page {
	p := Page{ids: map[string]int{}, inline: map[string][]string{}}
	z := html.NewTokenizer(bytes.NewReader(page))
	for {
		kind := z.Next()
		token := z.Token()
		switch kind {
		case html.ErrorToken:
			if z.Err() != io.EOF {
				p.wrong("%v", z.Err())
			}
			p.whole()
			return p
		case html.TextToken:
			p.text(token.Data)
		case html.StartTagToken, html.SelfClosingTagToken:
			p.element(token, kind == html.StartTagToken)
		case html.EndTagToken:
			p.end(token.Data)
		case html.CommentToken:
			p.wrong("comment %q", token.Data)
		}
	}
}

func (p *Page) wrong(format string, a ...any) {
	p.Problems = append(p.Problems, fmt.Sprintf(format, a...))
}

func (p *Page) text(text string) {
	if n := len(p.open); n > 0 && (p.open[n-1] == "style" || p.open[n-1] == "script") {
		p.inline[p.open[n-1]] = append(p.inline[p.open[n-1]], text)
		return
	}
	p.Text += text + " "
}

func (p *Page) element(t html.Token, opens bool) {
	p.Tags = append(p.Tags, t.Data)
	if !slices.Contains(allowed, t.Data) {
		p.wrong("element %q", t.Data)
	}
	if opens && !slices.Contains(void, t.Data) {
		p.open = append(p.open, t.Data)
	}
	seen := map[string]bool{}
	for _, a := range t.Attr {
		if seen[a.Key] {
			p.wrong("%s has %s twice", t.Data, a.Key)
		}
		seen[a.Key] = true
		p.attribute(t, a)
	}
}

func (p *Page) attribute(t html.Token, a html.Attribute) {
	switch {
	case strings.HasPrefix(a.Key, "on"), slices.Contains([]string{"src", "srcset", "style", "action", "formaction",
		"ping", "xlink:href", "target", "background", "poster"}, a.Key):
		p.wrong("%s has %s=%q", t.Data, a.Key, a.Val)
	case a.Key == "id":
		p.ids[a.Val]++
	case a.Key == "href":
		p.links = append(p.links, a.Val)
	case a.Key == "content" && strings.Contains(a.Val, "default-src"):
		p.policy = a.Val
		if slices.Contains(p.Tags, "style") || slices.Contains(p.Tags, "script") {
			p.wrong("the policy comes after what it is about")
		}
	case a.Key == "aria-label":
		p.Text += a.Val + " "
	}
	foreign(a.Val, func(what string) { p.wrong("%s has %s=%q: %s", t.Data, a.Key, a.Val, what) })
}

// foreign finds what would make a browser ask for something.
func foreign(text string, report func(string)) {
	lower := strings.ToLower(text)
	for _, sign := range []string{"://", "javascript:", "data:", "@import", "expression("} {
		if strings.Contains(lower, sign) {
			report(sign)
		}
	}
	for rest := lower; ; {
		_, after, is := strings.Cut(rest, "url(")
		if !is {
			return
		}
		if !strings.HasPrefix(after, "#") {
			report("url(")
		}
		rest = after
	}
}

func (p *Page) end(tag string) {
	n := len(p.open)
	if n == 0 || p.open[n-1] != tag {
		p.wrong("</%s> ends %v", tag, p.open[max(0, n-3):])
		return
	}
	p.open = p.open[:n-1]
}

// whole looks at what only the end of a page shows.
func (p *Page) whole() {
	if len(p.open) > 0 {
		p.wrong("not closed: %v", p.open)
	}
	for id, n := range p.ids {
		if n > 1 || id == "" || strings.ContainsAny(id, " \t\n\"'<>") {
			p.wrong("id %q %d times", id, n)
		}
	}
	for _, l := range p.links {
		if name, own := strings.CutPrefix(l, "#"); !own || p.ids[name] != 1 {
			p.wrong("link to %q", l)
		}
	}
	for _, word := range []string{"default-src 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(p.policy, word) {
			p.wrong("the policy %q lacks %s", p.policy, word)
		}
	}
	for _, kind := range []string{"style", "script"} {
		text := p.inline[kind]
		if len(text) != 1 {
			p.wrong("%d elements %s with a text", len(text), kind)
			continue
		}
		sum := sha256.Sum256([]byte(text[0]))
		if want := kind + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'"; !strings.Contains(p.policy, want) {
			p.wrong("the policy does not let the page's own %s through", kind)
		}
		foreign(text[0], func(what string) { p.wrong("%s: %s", kind, what) })
	}
}
