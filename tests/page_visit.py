"""One visit of the page in a real browser: what is done on it, what the browser complains of, which hosts it asks."""

from dataclasses import dataclass, field

from playwright.sync_api import Locator, Page, expect


@dataclass
class Visit:
    """A page, what the browser complained of, and which hosts it asked."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    @property
    def last(self) -> Locator:
        """The last question with its answer."""
        return self.page.locator(".exchange").last

    def shows(self, state: str) -> None:
        """Wait until the page says that the server is in this state."""
        expect(self.page.locator("#state")).to_have_text(state, timeout=15_000)

    def ask(self, question: str) -> None:
        self.page.get_by_label("Message").fill(question)
        self.page.get_by_label("Message").press("Enter")

    def answer(self, question: str) -> str:
        """Ask, and wait for the whole answer."""
        self.ask(question)
        expect(self.last.get_by_role("button", name="Copy")).to_be_visible(timeout=30_000)
        return self.last.locator(".answer").text_content() or ""

    def fact(self, name: str) -> str:
        return self.last.locator(f".{name}").text_content() or ""
