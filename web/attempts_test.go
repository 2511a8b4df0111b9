package web_test

import (
	"fmt"
	"testing"
	"time"

	"sluis/web"
)

func TestAttempts(t *testing.T) {
	now := time.Date(2025, 10, 26, 0, 0, 0, 0, time.UTC)
	t.Run("one name from many addresses", func(t *testing.T) {
		a := web.NewAttempts()
		allowed := 0
		for i := range 40 {
			if a.Allow(now, "Anna", fmt.Sprintf("10.0.0.%d", i)) {
				allowed++
			}
		}
		if allowed != 10 {
			t.Errorf("%d allowed", allowed)
		}
		if !a.Allow(now.Add(time.Minute), "anna", "10.0.1.1") {
			t.Error("refused a minute later")
		}
	})
	t.Run("many names from one address", func(t *testing.T) {
		a := web.NewAttempts()
		allowed := 0
		for i := range 100 {
			if a.Allow(now, fmt.Sprintf("name%d", i), "10.0.0.1") {
				allowed++
			}
		}
		if allowed != 30 {
			t.Errorf("%d allowed", allowed)
		}
		if !a.Allow(now, "name", "10.0.0.2") {
			t.Error("another address is refused as well")
		}
	})
}
