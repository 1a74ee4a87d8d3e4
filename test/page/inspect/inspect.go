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
}

// allowed are the elements of a page that loads and sends nothing.
var allowed = strings.Fields(`html head meta title style script body header main footer section p a span b em small code
	div h1 h2 ul li dl dt dd table thead tbody tr th td svg defs pattern lineargradient stop g rect path circle line text`)

// Read takes a page apart.
func Read(page []byte) Page {
	p := Page{ids: map[string]int{}}
	for z := html.NewTokenizer(bytes.NewReader(page)); ; {
		kind := z.Next()
		token := z.Token()
		n := len(p.open)
		switch kind {
		case html.ErrorToken:
			p.check(z.Err() == io.EOF && n == 0, "%v, not closed: %v", z.Err(), p.open)
			p.whole()
			return p
		case html.TextToken:
			if n > 0 && (p.open[n-1] == "style" || p.open[n-1] == "script") {
				p.own(p.open[n-1], token.Data)
			} else {
				p.Text += token.Data + " "
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			p.element(token, kind == html.StartTagToken)
		case html.EndTagToken:
			if p.check(n > 0 && p.open[n-1] == token.Data, "</%s> ends %v", token.Data, p.open); n > 0 {
				p.open = p.open[:n-1]
			}
		case html.CommentToken:
			p.check(false, "comment %q", token.Data)
		}
	}
}

func (p *Page) check(fine bool, format string, a ...any) {
	if !fine {
		p.Problems = append(p.Problems, fmt.Sprintf(format, a...))
	}
}

func (p *Page) element(t html.Token, opens bool) {
	p.Tags = append(p.Tags, t.Data)
	p.check(slices.Contains(allowed, t.Data), "element %q", t.Data)
	if opens && t.Data != "meta" {
		p.open = append(p.open, t.Data)
	}
	for _, a := range t.Attr {
		loads := []string{"src", "srcset", "style", "action", "formaction", "ping", "xlink:href", "target", "background",
			"poster"}
		p.check(!strings.HasPrefix(a.Key, "on") && !slices.Contains(loads, a.Key), "%s has %s=%q", t.Data, a.Key, a.Val)
		switch a.Key {
		case "id":
			p.ids[a.Val]++
		case "href":
			p.links = append(p.links, a.Val)
		case "content":
			p.policy += a.Val
		case "aria-label":
			p.Text += a.Val + " "
		}
		p.foreign(t.Data+" has "+a.Key+"=", a.Val)
	}
}

// foreign finds what would make a browser ask for something.
func (p *Page) foreign(where, text string) {
	lower := strings.ReplaceAll(strings.ToLower(text), "url(#", "")
	for _, sign := range []string{"://", "javascript:", "data:", "@import", "expression(", "url("} {
		p.check(!strings.Contains(lower, sign), "%s%q: %s", where, text, sign)
	}
}

// own looks at a style or script, which the policy before it must let through as it is.
func (p *Page) own(kind, text string) {
	sum := sha256.Sum256([]byte(text))
	want := kind + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	p.check(strings.Contains(p.policy, want), "the policy does not let the page's own %s through", kind)
	p.foreign(kind, text)
}

// whole looks at what only the end of a page shows.
func (p *Page) whole() {
	for id, n := range p.ids {
		p.check(n == 1 && id != "" && !strings.ContainsAny(id, " \t\n\"'<>"), "id %q %d times", id, n)
	}
	for _, l := range p.links {
		name, own := strings.CutPrefix(l, "#")
		p.check(own && p.ids[name] == 1, "link to %q", l)
	}
	for _, word := range []string{"default-src 'none'", "base-uri 'none'", "form-action 'none'"} {
		p.check(strings.Contains(p.policy, word), "the policy %q lacks %s", p.policy, word)
	}
}
