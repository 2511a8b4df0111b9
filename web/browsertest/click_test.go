package browsertest_test

import (
	"context"
	"net"
	"testing"

	"github.com/chromedp/chromedp"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// shiftClick clicks the middle of an element with Shift held.
func shiftClick(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		nodes, err := chromedp.Nodes(chromedp.CSS(selector))(ctx, t)
		if err != nil {
			return err
		}
		_, err = chromedp.MouseClickNode(nodes[0], chromedp.ButtonModifiers(chromedp.ModifierShift))(ctx, t)
		return err
	})
}
